//! Values and rows, as both databases have them.

use super::{StoreError, Stored};

/// What a database holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Null,
    Integer(i64),
    Text(String),
    Blob(Vec<u8>),
}

/// One row of an answer.
pub(super) struct Row(pub(super) Vec<Value>);

/// What a column can be read as.
pub(super) trait Column: Sized {
    /// Nothing if the value is no such thing.
    fn read(value: &Value) -> Option<Self>;
}

/// Values in the order of their numbers in a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => { &[$($crate::store::row::Value::from($value)),*] };
}
pub(super) use values;

impl Row {
    /// A column, by its place.
    pub(super) fn read<T: Column>(&self, column: usize) -> Stored<T> {
        let value = self.0.get(column);
        value.and_then(T::read).ok_or_else(|| {
            StoreError::Damaged(format!(
                "the database holds {value:?} where it cannot (column {column}); restore a backup"
            ))
        })
    }
}

/// Numbers that no column can hold become the greatest that it can: none is ever stored.
fn clamp(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Integer(clamp(number))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Integer(number.into())
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Self {
        Self::Integer(is.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Blob(bytes.to_vec())
    }
}

impl<T> From<Option<T>> for Value
where
    Self: From<T>,
{
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Self::from)
    }
}

impl Column for u64 {
    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Integer(number) => Self::try_from(*number).ok(),
            _ => None,
        }
    }
}

impl Column for u32 {
    fn read(value: &Value) -> Option<Self> {
        u64::read(value).and_then(|number| Self::try_from(number).ok())
    }
}

impl Column for bool {
    fn read(value: &Value) -> Option<Self> {
        u64::read(value).map(|number| number != 0)
    }
}

impl Column for String {
    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

impl Column for Vec<u8> {
    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Blob(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }
}

impl Column for [u8; 32] {
    fn read(value: &Value) -> Option<Self> {
        Vec::read(value).and_then(|bytes| bytes.try_into().ok())
    }
}

impl<T: Column> Column for Option<T> {
    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::read(value).map(Some),
        }
    }
}
