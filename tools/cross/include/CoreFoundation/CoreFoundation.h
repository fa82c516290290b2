// What metal-cpp takes from Apple's header of this name.
#pragma once

using CFTimeInterval = double;
