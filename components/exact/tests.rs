use super::*;
use num_bigint::BigInt;
use proptest::prelude::*;

/// A finite float as a multiple of the least one above 0.
fn integer<F: ExactFloat>(value: F) -> BigInt {
    let bits = value.into_bits();
    let width = F::FRACTION + F::SPECIAL.count_ones();
    let magnitude = bits & ((1 << width) - 1);
    let (exponent, fraction) = (magnitude >> F::FRACTION, magnitude & ((1 << F::FRACTION) - 1));
    let units = match exponent {
        0 => BigInt::from(fraction),
        _ => BigInt::from(fraction | 1 << F::FRACTION) << (exponent - 1),
    };
    if bits >> width != 0 { -units } else { units }
}

/// Checks that a float is the nearest one to an integer by looking at its neighbours.
fn check_nearest<F: ExactFloat>(value: F, exact: &BigInt) -> Result<(), TestCaseError> {
    let zero = BigInt::from(0);
    let (width, infinity) = (F::FRACTION + F::SPECIAL.count_ones(), F::SPECIAL << F::FRACTION);
    let (is_negative, magnitude) = (value.into_bits() >> width != 0, value.into_bits() & ((1 << width) - 1));
    prop_assert!(!is_negative || *exact < zero, "−0, or a wrong sign");
    let exact = if *exact < zero { -exact } else { exact.clone() };
    // What would come behind the greatest float stands for infinity.
    let of = |bits: u64| match bits == infinity {
        true => BigInt::from(1) << (F::SPECIAL - 1 + u64::from(F::FRACTION)),
        false => integer(F::of_bits(bits)),
    };
    prop_assert!(magnitude <= infinity);
    let distance = |bits: u64| {
        let distance = of(bits) - &exact;
        if distance < zero { -distance } else { distance }
    };
    let own = distance(magnitude);
    for other in [magnitude.checked_sub(1), Some(magnitude + 1).filter(|&bits| bits <= infinity)].into_iter().flatten()
    {
        let is_nearer = own < distance(other) || own == distance(other) && magnitude & 1 == 0;
        prop_assert!(is_nearer || magnitude == infinity && exact >= of(infinity), "{magnitude:x} beside {other:x}");
    }
    Ok(())
}

/// Adds floats in two parts, in two orders, and compares with integers.
fn check<F: ExactFloat>(bits: &[u64], split: usize) -> Result<(), TestCaseError> {
    let values: Vec<F> = bits.iter().map(|&bits| F::of_bits(bits)).collect();
    let is_special = |value: &&F| value.into_bits() >> F::FRACTION & F::SPECIAL == F::SPECIAL;
    let split = split % (values.len() + 1);
    let (left, right) = values.split_at(split);
    let sum: ExactSum<F> = values.iter().copied().collect();
    let reversed: ExactSum<F> = right.iter().rev().copied().collect();
    let parts = op::Sum.combine(reversed, left.iter().rev().copied().collect());
    prop_assert_eq!(bytemuck::bytes_of(&sum), bytemuck::bytes_of(&parts), "all bytes, whatever the order");
    if values.iter().any(|value| is_special(&value)) {
        let plain = values.iter().filter(is_special).copied();
        let expected = plain.fold(0.0, |sum, value| sum + as_special(value));
        let found = as_special(sum.value());
        prop_assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan());
        return Ok(());
    }
    check_nearest(sum.value(), &values.iter().map(|&value| integer(value)).sum())
}

/// An infinity or a NaN as an `f64`.
fn as_special<F: ExactFloat>(value: F) -> f64 {
    let bits = value.into_bits();
    match (bits & ((1 << F::FRACTION) - 1), bits >> (F::FRACTION + F::SPECIAL.count_ones()) != 0) {
        (0, false) => f64::INFINITY,
        (0, true) => f64::NEG_INFINITY,
        _ => f64::NAN,
    }
}

/// Bits of floats: any, those of some exponents, which cancel, and the ends of each range.
fn bits_of(width: u32, fraction: u32) -> impl Strategy<Value = u64> {
    let all = u64::MAX >> (64 - width);
    let near = (0u64..4, 0..4u64, any::<u64>()).prop_map(move |(sign, exponent, rest)| {
        let exponent = [0, 1, (1 << (width - 2 - fraction)) - 2, (1 << (width - 1 - fraction)) - 2][exponent as usize];
        let ends = [0, 1, (1 << fraction) - 1, 1 << (fraction - 1), rest & ((1 << fraction) - 1)];
        (sign & 1) << (width - 1) | exponent << fraction | ends[(rest >> 60) as usize % 5]
    });
    prop_oneof![6 => near, 3 => any::<u64>().prop_map(move |bits| bits & all & !(1 << (width - 2)))]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sums_of_f64_are_those_of_integers(bits in prop::collection::vec(bits_of(64, 52), 0..40), split in 0usize..100) {
        check::<f64>(&bits, split)?;
    }

    #[test]
    fn sums_of_f32_are_those_of_integers(bits in prop::collection::vec(bits_of(32, 23), 0..40), split in 0usize..100) {
        check::<f32>(&bits, split)?;
    }

    #[test]
    fn any_floats_may_be_added(bits in prop::collection::vec(any::<u64>(), 0..6), split in 0usize..10) {
        check::<f64>(&bits, split)?;
        let specials = [0x7FF0 << 48, 0xFFF0 << 48, 0x7FF8 << 48, 0x3FF0 << 48];
        let bits: Vec<u64> = bits.iter().map(|bits| specials[(bits % 4) as usize]).collect();
        check::<f64>(&bits, split)?;
    }

    /// What a peer sends may be anything, and is a value, too.
    #[test]
    fn any_bytes_are_a_sum(words in prop::collection::vec(any::<u64>(), 35)) {
        let sum: ExactSum<f64> = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&words));
        let mut twice = sum;
        twice += &sum;
        twice += 1.0;
        let (_, _) = (sum.value(), twice.value());
    }
}

#[test]
fn ends_of_the_range_and_halves_are_rounded_as_floats_are() {
    let sum = |values: &[f64]| values.iter().copied().collect::<ExactSum<f64>>().value();
    assert_eq!(sum(&[]).to_bits(), 0);
    assert_eq!(sum(&[-0.0]).to_bits(), 0);
    assert_eq!(sum(&[f64::MAX, f64::MAX]), f64::INFINITY);
    assert_eq!(sum(&[-f64::MAX, -f64::MAX]), f64::NEG_INFINITY);
    assert_eq!(sum(&[f64::MAX, f64::MAX, -f64::MAX]), f64::MAX);
    assert_eq!(sum(&[f64::from_bits(1); 3]), f64::from_bits(3));
    assert_eq!(sum(&[1.0, f64::EPSILON / 2.0]), 1.0, "a half goes to the even one");
    assert_eq!(sum(&[1.0, f64::EPSILON / 2.0, f64::from_bits(1)]), 1.0 + f64::EPSILON);
    assert_eq!(sum(&[1.0 + f64::EPSILON, f64::EPSILON / 2.0]), 1.0 + 2.0 * f64::EPSILON);
    assert!(sum(&[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
    let float = |values: &[f32]| values.iter().copied().collect::<ExactSum<f32>>().value();
    assert_eq!(float(&[16_777_216.0, 1.0, -16_777_216.0]), 1.0);
    assert_eq!(float(&[f32::MAX, f32::MAX]), f32::INFINITY);
}
