// Ranks of true columns as plain functions; see common/launchers.h for what holds of all of them.
#pragma once

#include "ranking/functors.hpp"

namespace dgbench {

extern "C" {
int dgb_rank_columns_float(const RankRows<float>* args, void* stream);
int dgb_rank_columns_double(const RankRows<double>* args, void* stream);
}

}  // namespace dgbench
