//! Type signatures of messages, for engines that check types: the names of element types, and short numbers for them.

use crate::wire::TypeNumber;
use crate::{Bool, Row};
use std::any::Any;
use std::fmt;

/// Longest name of a type, bytes. Longer names are cut.
pub const TYPE_NAME_MAX: usize = 512;

/// The types of messages that are known here, and those that each peer knows. Exists only if types are checked.
///
/// A sender numbers the types that it sends, from 1 on, in the order of their first use. Before it sends the first message of a type to
/// a peer, it sends the type's name.
#[derive(Default)]
pub struct Signatures {
    /// Names of the types that were posted here, by number − 1. Written by posting.
    pub names: Vec<&'static str>,
    /// The type of each operation, by CAR row; 0 for none. Written by posting.
    pub operations: Vec<TypeNumber>,
    /// The type of each unexpected message, by its row; the number is that of its sender. Written by Match.
    pub unexpected: Vec<TypeNumber>,
    /// The types that each peer knows and has sent, by VC row. Written by Post and Match.
    pub peers: Vec<PeerTypes>,
    /// Receives whose message has another type: the CAR row, and the sender's name of the type. Written by Match.
    pub mismatches: Vec<(Row, String)>,
}

/// The names of types that were exchanged with a peer. An entry of [`Signatures::peers`].
#[derive(Default)]
pub struct PeerTypes {
    /// How many names were sent to the peer; `None` before the peer knows that this side checks types.
    pub told: Option<TypeNumber>,
    /// The names of the peer's types, by number − 1; `None` before the peer has said that it checks types.
    pub names: Option<Vec<String>>,
    /// The transport's state of the name that is being sent.
    pub state: Option<Box<dyn Any + Send + Sync>>,
}

impl Signatures {
    /// The number of a type. A new type gets the next number. 0 if there is no type, or if there are too many.
    pub fn number(&mut self, name: Option<&'static str>) -> TypeNumber {
        let Some(name) = name.map(element) else { return 0 };
        let known = self.names.iter().position(|known| *known == name);
        let Ok(number) = TypeNumber::try_from(known.unwrap_or(self.names.len()) + 1) else { return 0 };
        if known.is_none() {
            self.names.push(name);
        }
        number
    }

    /// The name of a type of this side; empty for 0.
    pub fn name(&self, number: TypeNumber) -> &'static str {
        number.checked_sub(1).and_then(|index| self.names.get(usize::from(index))).copied().unwrap_or_default()
    }

    /// The names of types that were exchanged with a VC's peer.
    pub fn peer(&mut self, vc: Row) -> &mut PeerTypes {
        at(&mut self.peers, vc)
    }

    /// Whether a name is on its way to a VC's peer, of which the transport may have taken a part.
    pub fn is_telling(&self, vc: Row) -> bool {
        self.peers.get(vc as usize).is_some_and(|peer| peer.state.is_some())
    }

    /// The type number of an operation.
    pub fn operation(&mut self, row: Row) -> &mut TypeNumber {
        at(&mut self.operations, row)
    }

    /// The type number of an unexpected message.
    pub fn unexpected(&mut self, entry: Row) -> &mut TypeNumber {
        at(&mut self.unexpected, entry)
    }
}

impl PeerTypes {
    /// The name of a type of the peer; `None` if the peer has not sent it.
    pub fn name(&self, number: TypeNumber) -> Option<&str> {
        let index = usize::from(number.checked_sub(1)?);
        self.names.as_ref()?.get(index).map(String::as_str)
    }
}

impl fmt::Debug for Signatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signatures").field("names", &self.names).finish_non_exhaustive()
    }
}

/// The entry of a row in a column. The column grows if it is too short.
fn at<T: Default>(column: &mut Vec<T>, row: Row) -> &mut T {
    let row = row as usize;
    if row >= column.len() {
        column.resize_with((row + 1).next_power_of_two(), T::default);
    }
    &mut column[row]
}

/// The innermost element type of arrays: a message of `[f64; 3]`s counts as one of `f64`s, and one of [`Bool`]s as one of `bool`s.
fn element(mut name: &'static str) -> &'static str {
    while let Some((inner, _)) = name.strip_prefix('[').and_then(|inner| inner.rsplit_once("; ")) {
        name = inner;
    }
    // `bool` and [`Bool`] match each other.
    if name == std::any::type_name::<Bool>() { "bool" } else { name }
}

/// The part of a name that is sent: at most [`TYPE_NAME_MAX`] bytes.
pub fn told(name: &str) -> &str {
    let mut end = name.len().min(TYPE_NAME_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_one_number_and_arrays_have_that_of_their_elements() {
        let mut types = Signatures::default();
        let name = std::any::type_name::<f64>;
        assert_eq!((types.number(None), types.number(Some(name()))), (0, 1));
        assert_eq!(types.number(Some(std::any::type_name::<[[f64; 3]; 2]>())), 1);
        assert_eq!(types.number(Some("u8")), 2);
        assert_eq!(types.number(Some(std::any::type_name::<[Bool; 2]>())), types.number(Some("bool")));
        assert_eq!((types.name(0), types.name(1), types.name(2), types.name(3)), ("", "f64", "u8", "bool"));
    }

    #[test]
    fn more_types_than_numbers_are_not_told_apart() {
        let mut types = Signatures::default();
        let names: Vec<&'static str> = (0..300).map(|i| &*Box::leak(format!("T{i}").into_boxed_str())).collect();
        let numbers: Vec<_> = names.iter().map(|name| types.number(Some(name))).collect();
        assert_eq!((numbers[254], numbers[255], numbers[299], types.names.len()), (255, 0, 0, 255));
    }

    #[test]
    fn a_long_name_is_told_in_part() {
        let name = "é".repeat(TYPE_NAME_MAX);
        assert_eq!(told(&name).len(), TYPE_NAME_MAX);
        assert_eq!(told(&format!("a{name}")).len(), TYPE_NAME_MAX - 1);
        assert_eq!(told("f64"), "f64");
    }

    #[test]
    fn columns_grow_with_their_rows() {
        let mut types = Signatures::default();
        *types.operation(9) = 3;
        assert_eq!((*types.operation(9), *types.operation(0), *types.unexpected(70)), (3, 0, 0));
        let peer = types.peer(2);
        assert_eq!((peer.name(1), peer.told), (None, None));
        peer.names = Some(vec!["i32".into()]);
        assert_eq!((peer.name(1), peer.name(0), peer.name(2)), (Some("i32"), None, None));
    }
}
