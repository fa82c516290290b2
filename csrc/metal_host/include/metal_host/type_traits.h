// <metal_type_traits>: those of C++, which know half and bfloat here, and Metal's own.
#pragma once

#include <type_traits>

#include "metal_host/types.h"

namespace METAL_HOST_MSL::metal {

using std::bool_constant;
using std::conditional;
using std::conditional_t;
using std::enable_if;
using std::enable_if_t;
using std::false_type;
using std::integral_constant;
using std::is_const;
using std::is_const_v;
using std::is_convertible;
using std::is_convertible_v;
using std::is_integral;
using std::is_integral_v;
using std::is_pointer;
using std::is_pointer_v;
using std::is_reference;
using std::is_reference_v;
using std::is_same;
using std::is_same_v;
using std::is_void;
using std::is_void_v;
using std::make_signed;
using std::make_signed_t;
using std::make_unsigned;
using std::make_unsigned_t;
using std::remove_const;
using std::remove_const_t;
using std::remove_cv;
using std::remove_cv_t;
using std::remove_pointer;
using std::remove_pointer_t;
using std::remove_reference;
using std::remove_reference_t;
using std::true_type;

template <class T>
struct is_floating_point : bool_constant<std::is_floating_point_v<T> || short_float::is_short<std::remove_cv_t<T>>> {};
template <class T>
constexpr bool is_floating_point_v = is_floating_point<T>::value;

template <class T>
struct is_arithmetic : bool_constant<is_integral_v<T> || is_floating_point_v<T>> {};
template <class T>
constexpr bool is_arithmetic_v = is_arithmetic<T>::value;

template <class T>
struct is_signed : bool_constant<std::is_signed_v<T> || short_float::is_short<std::remove_cv_t<T>>> {};
template <class T>
constexpr bool is_signed_v = is_signed<T>::value;

template <class T>
struct is_unsigned : bool_constant<std::is_unsigned_v<T>> {};
template <class T>
constexpr bool is_unsigned_v = is_unsigned<T>::value;

template <class T>
struct remove_addrspace : value_in_memory<T> {};
template <class T>
using remove_addrspace_t = typename remove_addrspace<T>::type;

}  // namespace METAL_HOST_MSL::metal
