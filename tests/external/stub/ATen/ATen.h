// As torch/library.h beside this folder.
#pragma once

#include <torch/library.h>
