//! # pages: what a package installs beside a program
//!
//! Two programs have words, `warren` and `warren-lab`, and both print manual pages and completions
//! of them. This crate is the one source of both: it gets a program's words as the parser has them,
//! and a [`Book`] of what the parser does not know, and writes what a shell or `man` wants.
//!
//! The life of an example. It stands in the program's [`Book`], by the words of its command.
//! [`Book::dress`] puts it behind the long help of that command. [`wanting`] tells which commands
//! have none, and which examples the parser would refuse; both programs have a test that asks.
//!
//! The life of a manual page. A program flattens [`Man`] into its own words, so that
//! `warren man DIR` exists; when it is typed, the program hands its whole command over to
//! [`Man::write`], which makes the folder and writes a page for the program, one for each of its
//! words, and one for each word of those: `warren.1`, `warren-link.1`, `warren-link-up.1`, and
//! `warren-daemon.8` for what runs as a service.
//!
//! The life of completions. [`Completions::print`] removes what is hidden from a copy of the
//! command, since the generators would list it, and prints the script that a shell sources. Around
//! it stands what asks the program for names of peers, nodes, links and labs.
//!
//! What is hidden in the words is in neither, for it is for the program itself: the process that
//! moves a lab's frames, or a word that only says where it went.
//!
//! Nothing here knows what any word means. Names are leaked, because clap wants them to live as
//! long as the program; it ends when they are printed.

mod book;
mod completions;
mod man;

pub use book::{Book, wanting};
pub use completions::Completions;
pub use man::Man;
