//! Key files that changed since they were read: it is told, and nothing else changes.

use noise::PublicKey;
use serde_json::{Value, json};

use crate::keyfile::KeyFile;

/// The key files of peers, and which of them were told of in the log.
#[derive(Debug, Default)]
pub(super) struct KeyFiles(Vec<(PublicKey, KeyFile, bool)>);

impl KeyFiles {
    pub(super) fn new(files: Vec<(PublicKey, KeyFile)>) -> Self {
        Self(files.into_iter().map(|(key, file)| (key, file, false)).collect())
    }

    /// Logs a change, once.
    pub(super) fn look(&mut self) {
        for (_, file, is_told) in self.0.iter_mut().filter(|(.., is_told)| !is_told) {
            if let Some(why) = why(file) {
                tracing::warn!("{why}");
                *is_told = true;
            }
        }
    }

    /// Adds to what is told of links what happened to their files.
    pub(super) fn add(&self, told: &mut Value) {
        for peer in told["peers"].as_array_mut().into_iter().flatten() {
            let has_key = |key: &PublicKey| peer["key"] == key.to_string();
            let file = self.0.iter().find(|(key, ..)| has_key(key)).map(|(_, file, _)| file);
            peer["key_file"] = file.map_or(
                Value::Null,
                |file| json!({ "path": file.path.to_string_lossy(), "changed": why(file) }),
            );
        }
    }
}

fn why(file: &KeyFile) -> Option<String> {
    let change = file.change()?;
    let path = file.path.display();
    Some(format!(
        "{path} {change}; its keys are used as they were read, until `warren link reload` or SIGHUP"
    ))
}
