// What the models of the time count on: the multiprocessors that most devices of an architecture have, and the clock
// that their rates are for. What runs is right on any number of them; only the order of candidates depends on these.
#pragma once

namespace tessera {

struct ModelDevice {
  double sms = 0;
  double clock_ghz = 0;  ///< under load
};

inline constexpr ModelDevice kHopper{132, 1.7};
inline constexpr ModelDevice kBlackwell{148, 1.85};  // by published figures: never measured

}  // namespace tessera
