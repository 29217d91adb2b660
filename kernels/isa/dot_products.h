// The products of panels where the ISA has a dot of four bytes: sums of 32 bits from the start, so
// there is nothing to begin or to end. Meanings: kernels/isa/README.md.
#pragma once

#include <cstddef>

namespace millrace {
namespace {

// `Base` has dot4_i(). AVX-512-VNNI has these by value: through references GCC makes 3 % more code.
template <class Base>
struct DotProducts : Base {
  using typename Base::B64;
  using Products = typename Base::I32x16;
  static constexpr std::size_t products_steps(unsigned /*largest*/) { return 8; }
  static Products begin_products(const Products& sum) { return sum; }
  static Products add_products(const Products& products, const B64& u, const B64& a) {
    return Base::dot4_i(products, u, a);
  }
  static Products end_products(const Products& /*sum*/, const Products& products) {
    return products;
  }
};

}  // namespace
}  // namespace millrace
