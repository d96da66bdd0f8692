//! A transcript of a circuit, read by another program.

use std::process::Command;

use crate::support::{Result, ensure};

#[test]
fn another_program_that_was_made_from_the_documents_makes_every_frame_of_a_circuit() -> Result<()> {
    let root = env!("CARGO_MANIFEST_DIR");
    let kept = format!("{root}/core/packets/circuit/src/circuits/tests/transcript.txt");
    let program = format!("{root}/tests/circuit/transcript.py");
    let read = |path: &str| Command::new("python3").args([&program, path]).output();
    let good = read(&kept)?;
    let said = String::from_utf8_lossy(&good.stdout).into_owned();
    let why = String::from_utf8_lossy(&good.stderr).into_owned();
    ensure!(
        good.status.success() && said.contains("frames are as the documents say"),
        "{said}{why}"
    );
    // One bit of one frame is enough to be told.
    let text = std::fs::read_to_string(&kept)?;
    let Some(at) = text.find("frame 3 2 ") else { anyhow::bail!("no frame of the exit's") };
    let mut bytes = text.into_bytes();
    let bit = &mut bytes[at + 60];
    *bit = if *bit == b'0' { b'1' } else { b'0' };
    let changed = std::env::temp_dir().join(format!("warren-transcript-{}", std::process::id()));
    std::fs::write(&changed, bytes)?;
    let bad = read(&changed.display().to_string())?;
    let _ = std::fs::remove_file(&changed);
    ensure!(!bad.status.success(), "a changed frame is not noticed");
    Ok(())
}
