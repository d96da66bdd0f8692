//! What was meant by a key that is misspelt.

/// The known key that is meant by a misspelt one, if one is near enough.
pub(super) fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    let key = key.to_ascii_lowercase();
    let far = |k: &&&str| distance(&key, &k.to_ascii_lowercase());
    known.iter().min_by_key(far).filter(|k| far(k) <= 1 + k.len() / 4).copied()
}

/// Levenshtein distance of two short texts.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(40).collect();
    let mut row: Vec<usize> = (0..=a.len()).collect();
    for (i, cb) in b.chars().take(40).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, ca) in a.iter().enumerate() {
            let substituted = diagonal + usize::from(*ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[a.len()]
}
