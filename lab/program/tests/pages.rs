//! Every command of `warren-lab` that a page shows is one: its words and its flags stand in the
//! program's own help.

use std::path::PathBuf;

#[path = "../../../tests/pages/calls.rs"]
mod calls;

use calls::Program;

#[test]
fn every_command_of_the_laboratory_that_a_page_shows_is_one() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut program = Program::new(env!("CARGO_BIN_EXE_warren-lab"));
    let (count, wrong) = calls::wrong(&mut program, "warren-lab", root);
    assert!(count > 15, "{count} calls were found");
    assert!(wrong.is_empty(), "mend the page or the program:\n{}", wrong.join("\n"));
}
