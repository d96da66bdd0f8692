//! Every command that a page shows is one: its words and its flags stand in the program's own help.
//! Read are the code of the README and of `docs`, in blocks and in lines, as far as it calls
//! `warren`.

use std::path::PathBuf;

#[path = "pages/calls.rs"]
mod calls;

use calls::Program;

const WARREN: &str = env!("CARGO_BIN_EXE_warren");

#[test]
fn every_command_that_a_page_shows_is_one() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let (count, wrong) = calls::wrong(&mut Program::new(WARREN), "warren", root);
    assert!(count > 100, "{count} calls were found");
    assert!(wrong.is_empty(), "mend the page or the program:\n{}", wrong.join("\n"));
}

#[test]
fn what_is_no_command_and_what_is_no_flag_are_told() {
    let page = "`warren frob` and\n\n```\nsudo warren up TOKEN --nonsense=3   # why\nls\n```\n\
                `warren up TOKEN --reset`, `warren key create --user ann && x`, `warren a|b`\n";
    let mut program = Program::new(WARREN);
    let calls = calls::calls("warren", page);
    let found: Vec<_> = calls.iter().map(|words| program.judge(words)).collect();
    let told = |text: &str| Some(text.to_owned());
    let expected = [told("there is no command frob"), told("up has no --nonsense"), None, None];
    assert_eq!(found, expected);
}
