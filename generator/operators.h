// The one list of operators: planning finds an operator by its Problem and target, emission by its Config.
#pragma once

#include <type_traits>

#include "generator/convert_scales_operator.h"
#include "generator/copy2d_operator.h"
#include "generator/dequantize_operator.h"
#include "generator/fmha_operator.h"
#include "generator/fmha_tcgen05_operator.h"
#include "generator/gemm_operator.h"
#include "generator/gemm_tcgen05_operator.h"
#include "generator/gemv_operator.h"
#include "generator/quantize_operator.h"

namespace tessera {

template <class... Operators>
struct OperatorList {};

/// A Problem that two operators plan has its kernels for targets with tcgen05 in the one that says kIsForTcgen05.
using AllOperators = OperatorList<Copy2dOperator, FmhaOperator, FmhaTcgen05Operator, GemmOperator, GemmTcgen05Operator,
                                  QuantizeOperator, DequantizeOperator, ConvertScalesOperator, GemvOperator>;

template <class Operator>
inline constexpr bool kIsForTcgen05 = requires {
  Operator::kIsForTcgen05;
};

/// The first operator of a list that Matches takes, as `type`; no member where there is none.
template <template <class> class Matches, class List>
struct FindOperator {};
template <template <class> class Matches, class First, class... Rest>
struct FindOperator<Matches, OperatorList<First, Rest...>>
    : std::conditional_t<Matches<First>::value, std::type_identity<First>,
                         FindOperator<Matches, OperatorList<Rest...>>> {};

template <class Problem, bool is_for_tcgen05>
struct PlansProblem {
  template <class Operator>
  using Matches = std::bool_constant<std::is_same_v<typename Operator::Problem, Problem> &&
                                     kIsForTcgen05<Operator> == is_for_tcgen05>;
};
template <class Problem, bool is_for_tcgen05>
using OperatorOfProblem = FindOperator<PlansProblem<Problem, is_for_tcgen05>::template Matches, AllOperators>;

template <class Config>
struct TakesConfig {
  template <class Operator>
  using Matches = std::is_same<typename Operator::Config, Config>;
};
template <class Config>
using OperatorOfConfig = typename FindOperator<TakesConfig<Config>::template Matches, AllOperators>::type;

}  // namespace tessera
