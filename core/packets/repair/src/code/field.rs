//! The field GF(2^8): polynomials over GF(2) modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11d).
//!
//! Addition is exclusive or. Multiplication here is for the few coefficients of a matrix; the
//! bytes of chunks go through [`crate::code::kernel`].

/// The modulus without its highest term.
pub(crate) const REDUCTION: u8 = 0x1d;

/// Logarithms and powers of the generator 2.
struct Tables {
    log: [u8; 256],
    /// Twice round, so that a sum of two logarithms needs no reduction.
    exp: [u8; 512],
}

const TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut log = [0; 256];
    let mut exp = [0; 512];
    let mut value = 1u8;
    let mut power = 0;
    while power < 255 {
        exp[power] = value;
        exp[power + 255] = value;
        log[value as usize] = power as u8;
        value = double(value);
        power += 1;
    }
    Tables { log, exp }
}

/// Twice `a`.
pub(crate) const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 == 0 { 0 } else { REDUCTION }
}

/// The product.
pub(crate) const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    TABLES.exp[TABLES.log[a as usize] as usize + TABLES.log[b as usize] as usize]
}

/// The inverse; of zero, which has none, zero.
pub(crate) const fn invert(a: u8) -> u8 {
    if a == 0 { 0 } else { TABLES.exp[255 - TABLES.log[a as usize] as usize] }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Schoolbook: shift and add.
    fn multiply_slowly(mut a: u8, mut b: u8) -> u8 {
        let mut sum = 0;
        while b != 0 {
            sum ^= if b & 1 == 1 { a } else { 0 };
            (a, b) = (double(a), b >> 1);
        }
        sum
    }

    #[test]
    fn products_are_those_of_the_schoolbook() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), multiply_slowly(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn every_element_but_zero_has_an_inverse() {
        assert_eq!(invert(0), 0);
        for a in 1..=255 {
            assert_eq!(multiply(a, invert(a)), 1, "{a}");
        }
    }
}
