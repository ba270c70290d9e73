//! Updates of elements in memory that others update too.
//!
//! Two ways: each element by an atomic operation of the processor, or many by plain loads and stores under the update lock. See
//! [`super::lock`].

#![expect(unsafe_code, reason = "addresses of elements")]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use tickwire_components::{Bits, Number, NumberType, Span, Update, UpdateCode, UpdateOperation, bytemuck, op};

/// How elements of a type are updated by an operation.
#[derive(Debug)]
pub struct Updater {
    /// Its name on the wire.
    pub code: UpdateCode,
    /// Each by itself.
    each: unsafe fn(*mut u8, Span, *mut u8),
    /// All together.
    together: unsafe fn(*mut u8, Span, *mut u8),
    /// All together, by wide registers, which not every processor has.
    wide: unsafe fn(*mut u8, Span, *mut u8),
}

impl Updater {
    /// The one of a type and an operation.
    pub const fn of<T: Number, O: Update<T>>() -> &'static Updater {
        struct Of<T, O>(T, O);
        impl<T: Number, O: Update<T>> Of<T, O> {
            const UPDATER: Updater = Updater {
                code: UpdateCode { number: T::TYPE, operation: O::OPERATION },
                each: each::<T, O>,
                together: together::<T, O>,
                wide: together_wide::<T, O>,
            };
        }
        &const { Of::<T, O>::UPDATER }
    }

    /// The one that a frame names; `None` if there is none.
    pub fn named(code: UpdateCode) -> Option<&'static Updater> {
        match code.number {
            NumberType::U8 => integer::<u8>(code.operation),
            NumberType::U16 => integer::<u16>(code.operation),
            NumberType::U32 => integer::<u32>(code.operation),
            NumberType::U64 => integer::<u64>(code.operation),
            NumberType::I8 => integer::<i8>(code.operation),
            NumberType::I16 => integer::<i16>(code.operation),
            NumberType::I32 => integer::<i32>(code.operation),
            NumberType::I64 => integer::<i64>(code.operation),
            NumberType::F32 => float::<f32>(code.operation),
            NumberType::F64 => float::<f64>(code.operation),
        }
    }

    /// Bytes of an element.
    pub const fn size(&self) -> usize {
        self.code.number.size()
    }

    /// Updates elements, each by an atomic operation of the processor. Their old values go to `old`, unless that is null.
    ///
    /// # Safety
    /// `target` is aligned for the elements and valid for as many as there are operands; so is `old`, which need not be aligned.
    /// Nobody updates the elements otherwise meanwhile.
    #[inline(always)]
    pub(super) unsafe fn each(&self, target: *mut u8, operands: Span, old: *mut u8) {
        // SAFETY: by the same contract.
        unsafe { (self.each)(target, operands, old) }
    }

    /// Updates elements by plain loads and stores. For the holder of the update lock. Their old values go to `old`, unless that is null.
    ///
    /// # Safety
    /// `target` is aligned for the elements and valid for as many as there are operands; so is `old`, which need not be aligned.
    pub unsafe fn together(&self, target: *mut u8, operands: Span, old: *mut u8) {
        let together = if has_wide() { self.wide } else { self.together };
        // SAFETY: by the same contract, and the processor has been asked.
        unsafe { together(target, operands, old) }
    }
}

fn integer<T: Number>(operation: UpdateOperation) -> Option<&'static Updater>
where
    op::Sum: Update<T>,
    op::Product: Update<T>,
    op::Min: Update<T>,
    op::Max: Update<T>,
    op::BitAnd: Update<T>,
    op::BitOr: Update<T>,
    op::BitXor: Update<T>,
    op::LogicalAnd: Update<T>,
    op::LogicalOr: Update<T>,
    op::LogicalXor: Update<T>,
    op::Replace: Update<T>,
    op::Keep: Update<T>,
{
    match operation {
        UpdateOperation::BitAnd => Some(Updater::of::<T, op::BitAnd>()),
        UpdateOperation::BitOr => Some(Updater::of::<T, op::BitOr>()),
        UpdateOperation::BitXor => Some(Updater::of::<T, op::BitXor>()),
        UpdateOperation::LogicalAnd => Some(Updater::of::<T, op::LogicalAnd>()),
        UpdateOperation::LogicalOr => Some(Updater::of::<T, op::LogicalOr>()),
        UpdateOperation::LogicalXor => Some(Updater::of::<T, op::LogicalXor>()),
        _ => float::<T>(operation),
    }
}

fn float<T: Number>(operation: UpdateOperation) -> Option<&'static Updater>
where
    op::Sum: Update<T>,
    op::Product: Update<T>,
    op::Min: Update<T>,
    op::Max: Update<T>,
    op::Replace: Update<T>,
    op::Keep: Update<T>,
{
    match operation {
        UpdateOperation::Sum => Some(Updater::of::<T, op::Sum>()),
        UpdateOperation::Product => Some(Updater::of::<T, op::Product>()),
        UpdateOperation::Min => Some(Updater::of::<T, op::Min>()),
        UpdateOperation::Max => Some(Updater::of::<T, op::Max>()),
        UpdateOperation::Replace => Some(Updater::of::<T, op::Replace>()),
        UpdateOperation::Keep => Some(Updater::of::<T, op::Keep>()),
        _ => None,
    }
}

/// Bits that the processor updates.
pub(super) trait AtomicBits: Bits {
    /// An atomic operation that has one of its own, or is made of a comparison and a swap.
    unsafe fn update(at: *mut Self, operand: Self, native: Native, combine: impl Fn(Self) -> Self) -> Self;

    /// Stores `new` if the memory holds `expected`. Returns the old value.
    unsafe fn compare_swap(at: *mut Self, expected: Self, new: Self) -> Self;
}

/// What the processor has an atomic operation for.
#[derive(Clone, Copy)]
pub(super) enum Native {
    Add,
    And,
    Or,
    Xor,
    Swap,
    Load,
    /// None of these.
    Combine,
}

macro_rules! atomic {
    ($($bits:ty, $atomic:ty;)*) => {$(
        impl AtomicBits for $bits {
            #[inline(always)]
            unsafe fn update(at: *mut Self, operand: Self, native: Native, combine: impl Fn(Self) -> Self) -> Self {
                // SAFETY: by the contract of `Updater::each`.
                let atom = unsafe { <$atomic>::from_ptr(at) };
                match native {
                    Native::Add => atom.fetch_add(operand, Ordering::SeqCst),
                    Native::And => atom.fetch_and(operand, Ordering::SeqCst),
                    Native::Or => atom.fetch_or(operand, Ordering::SeqCst),
                    Native::Xor => atom.fetch_xor(operand, Ordering::SeqCst),
                    Native::Swap => atom.swap(operand, Ordering::SeqCst),
                    Native::Load => atom.load(Ordering::SeqCst),
                    Native::Combine => {
                        let mut seen = atom.load(Ordering::Relaxed);
                        while let Err(now) =
                            atom.compare_exchange_weak(seen, combine(seen), Ordering::SeqCst, Ordering::Relaxed)
                        {
                            seen = now;
                        }
                        seen
                    }
                }
            }

            #[inline(always)]
            unsafe fn compare_swap(at: *mut Self, expected: Self, new: Self) -> Self {
                // SAFETY: by the contract of `Updater::each`.
                let atom = unsafe { <$atomic>::from_ptr(at) };
                match atom.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(old) | Err(old) => old,
                }
            }
        }
    )*};
}

atomic! { u8, AtomicU8; u16, AtomicU16; u32, AtomicU32; u64, AtomicU64; }

/// What the processor has for an operation on a type.
const fn native<T: Number, O: Update<T>>() -> Native {
    let is_float = matches!(T::TYPE, NumberType::F32 | NumberType::F64);
    match O::OPERATION {
        UpdateOperation::Sum if !is_float => Native::Add,
        UpdateOperation::BitAnd => Native::And,
        UpdateOperation::BitOr => Native::Or,
        UpdateOperation::BitXor => Native::Xor,
        UpdateOperation::Replace => Native::Swap,
        UpdateOperation::Keep => Native::Load,
        _ => Native::Combine,
    }
}

/// One element. Its old value.
///
/// # Safety
/// As of [`Updater::each`].
#[inline(always)]
unsafe fn one<T: Number, O: Update<T>>(target: *mut T, operand: T) -> T {
    /// The same, where the bits are known.
    ///
    /// # Safety
    /// As of [`Updater::each`].
    #[inline(always)]
    unsafe fn as_bits<T: Number, O: Update<T>, B: AtomicBits>(target: *mut T, operand: T) -> T {
        let bits = |number: T| bytemuck::cast::<T, B>(number);
        let combine = |old: B| bits(O::default().combine(bytemuck::cast::<B, T>(old), operand));
        // SAFETY: by the same contract.
        let old = unsafe { B::update(target.cast(), bits(operand), const { native::<T, O>() }, combine) };
        bytemuck::cast(old)
    }
    // SAFETY: by the same contract.
    unsafe {
        match size_of::<T>() {
            1 => as_bits::<T, O, u8>(target, operand),
            2 => as_bits::<T, O, u16>(target, operand),
            4 => as_bits::<T, O, u32>(target, operand),
            _ => as_bits::<T, O, u64>(target, operand),
        }
    }
}

/// See [`Updater::each`].
///
/// # Safety
/// As there.
unsafe fn each<T: Number, O: Update<T>>(target: *mut u8, operands: Span, old: *mut u8) {
    let (target, from, old) = (target.cast::<T>(), operands.start().cast::<T>(), old.cast::<T>());
    for index in 0..operands.len() / size_of::<T>() {
        // SAFETY: by this function's contract.
        unsafe {
            let was = one::<T, O>(target.add(index), from.add(index).read_unaligned());
            if !old.is_null() {
                old.add(index).write_unaligned(was);
            }
        }
    }
}

/// Whether this processor has the registers that [`together_wide`] uses.
fn has_wide() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}

/// As [`together`], compiled for wide registers.
///
/// # Safety
/// As there, and the processor has them.
#[cfg_attr(all(target_arch = "x86_64", not(miri)), target_feature(enable = "avx2"))]
unsafe fn together_wide<T: Number, O: Update<T>>(target: *mut u8, operands: Span, old: *mut u8) {
    // SAFETY: by the same contract.
    unsafe { together::<T, O>(target, operands, old) }
}

/// See [`Updater::together`].
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn together<T: Number, O: Update<T>>(target: *mut u8, operands: Span, old: *mut u8) {
    let (target, from, old) = (target.cast::<T>(), operands.start().cast::<T>(), old.cast::<T>());
    let count = operands.len() / size_of::<T>();
    if !old.is_null() {
        // SAFETY: by this function's contract; the origin's memory and the window do not overlap, or are copied as they are.
        unsafe { old.cast::<u8>().copy_from(target.cast(), count * size_of::<T>()) };
    }
    if !O::OPERATION.writes() {
        // The owner may store elements without the lock. A read must not write them back.
        return;
    }
    for index in 0..count {
        // SAFETY: by this function's contract.
        unsafe {
            let element = target.add(index);
            element.write(O::default().combine(element.read(), from.add(index).read_unaligned()));
        }
    }
}

/// Puts `new` into an element if `expected` is there; what was there.
///
/// # Safety
/// As of [`Updater::each`].
#[inline(always)]
pub(super) unsafe fn compare_swap(target: *mut u8, number: NumberType, expected: [u8; 8], new: [u8; 8]) -> [u8; 8] {
    /// The first bytes of a word.
    fn first<const N: usize>(word: [u8; 8]) -> [u8; N] {
        std::array::from_fn(|index| word[index])
    }
    let mut old = [0; 8];
    macro_rules! swap {
        ($bits:ty) => {{
            let [expected, new] = [expected, new].map(|word| <$bits>::from_ne_bytes(first(word)));
            // SAFETY: by this function's contract.
            let was = unsafe { <$bits as AtomicBits>::compare_swap(target.cast(), expected, new) };
            old[..size_of::<$bits>()].copy_from_slice(&was.to_ne_bytes());
        }};
    }
    match number.size() {
        1 => swap!(u8),
        2 => swap!(u16),
        4 => swap!(u32),
        _ => swap!(u64),
    }
    old
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes as a span.
    fn span(bytes: &mut [u8]) -> Span {
        // SAFETY: the bytes outlive the test's use.
        unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) }
    }

    /// What three ways make of old values and operands: each, together, and by the name on the wire.
    fn check<T: Number + PartialEq + std::fmt::Debug, O: Update<T>>(old: &[T], operands: &[T], expected: &[T]) {
        let updater = Updater::of::<T, O>();
        let named = Updater::named(updater.code).expect("it has a name");
        let wide = if has_wide() { updater.wide } else { updater.together };
        for way in [updater.each, updater.together, wide, named.each, named.together] {
            let mut target = old.to_vec();
            // One byte off: operands and old values come out of frames.
            let mut bytes = vec![0u8; 1 + size_of_val(operands)];
            bytes[1..].copy_from_slice(bytemuck::cast_slice(operands));
            let mut were = vec![0u8; 1 + size_of_val(old)];
            // SAFETY: local memory of these lengths.
            unsafe {
                way(target.as_mut_ptr().cast(), span(&mut bytes[1..]), were[1..].as_mut_ptr());
                assert_eq!(target, expected, "{:?}", updater.code);
                assert_eq!(were[1..], *bytemuck::cast_slice::<T, u8>(old));
                way(target.as_mut_ptr().cast(), Span::EMPTY, std::ptr::null_mut());
                assert_eq!(target, expected);
            }
        }
    }

    #[test]
    fn all_ways_do_the_same() {
        check::<u8, op::Sum>(&[250, 1], &[10, 1], &[4, 2]);
        check::<i16, op::Product>(&[-3, 7], &[5, 0], &[-15, 0]);
        check::<i32, op::Min>(&[-3, 7], &[5, -9], &[-3, -9]);
        check::<u64, op::Max>(&[3, u64::MAX], &[5, 1], &[5, u64::MAX]);
        check::<u32, op::BitAnd>(&[6], &[3], &[2]);
        check::<u16, op::BitOr>(&[6], &[3], &[7]);
        check::<i8, op::BitXor>(&[6], &[3], &[5]);
        check::<i64, op::LogicalAnd>(&[2, 0], &[4, 4], &[1, 0]);
        check::<usize, op::LogicalOr>(&[0, 0], &[4, 0], &[1, 0]);
        check::<isize, op::LogicalXor>(&[1, 0], &[4, 4], &[0, 1]);
        check::<f64, op::Sum>(&[1.5, -2.0], &[0.25, 2.0], &[1.75, 0.0]);
        check::<f32, op::Min>(&[1.5, -2.0], &[0.25, 2.0], &[0.25, -2.0]);
        check::<f64, op::Replace>(&[1.5, -2.0], &[0.25, 2.0], &[0.25, 2.0]);
        check::<u16, op::Keep>(&[1, 2], &[3, 4], &[1, 2]);
    }

    #[test]
    fn floats_have_no_bits_and_every_other_code_has_an_updater() {
        for number in NumberType::ALL {
            for operation in UpdateOperation::ALL {
                let code = UpdateCode { number, operation };
                let is_float = matches!(number, NumberType::F32 | NumberType::F64);
                use UpdateOperation::*;
                let of_bits = matches!(operation, BitAnd | BitOr | BitXor | LogicalAnd | LogicalOr | LogicalXor);
                assert_eq!(Updater::named(code).map(|updater| updater.code), (!is_float || !of_bits).then_some(code));
            }
        }
    }

    #[test]
    fn a_value_is_swapped_only_for_the_expected_one() {
        let mut cells = [7u64, 0x0102_0304_0506_0708];
        let word = |value: u64| value.to_ne_bytes();
        // SAFETY: local memory.
        let swap = |cells: &mut [u64; 2], number, expected, new| unsafe {
            u64::from_ne_bytes(compare_swap(cells.as_mut_ptr().cast(), number, word(expected), word(new)))
        };
        assert_eq!(swap(&mut cells, NumberType::U64, 8, 9), 7);
        assert_eq!(cells[0], 7);
        assert_eq!(swap(&mut cells, NumberType::I64, 7, 9), 7);
        assert_eq!(swap(&mut cells, NumberType::U8, 9, 3), 9);
        assert_eq!(swap(&mut cells, NumberType::U32, 3, 1 << 20), 3);
        assert_eq!(swap(&mut cells, NumberType::I16, 0, 5), 0);
        assert_eq!(cells, [(1 << 20) + 5, 0x0102_0304_0506_0708]);
    }
}
