// What a router of experts is asked for. What each word means: MoeRoute in tessera/moe_route_problem.h.
#pragma once

namespace tessera {

// From logits to the scores that experts are weighted with.
enum class Scoring { softmax, sigmoid, sqrt_softplus };
// Whether a token's weights are divided by their sum.
enum class Renormalize { off, on };

}  // namespace tessera
