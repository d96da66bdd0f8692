//! Asking somebody at a terminal for what others must not read over the shoulder.

use std::io::{self, BufRead as _, Write as _};
use std::mem::MaybeUninit;

/// Asks on standard error and reads a line of standard input, which the terminal does not show.
///
/// # Errors
/// Standard input is no terminal, or cannot be read.
pub fn ask_hidden(what: &str) -> io::Result<String> {
    let before = Shown::hide()?;
    let mut line = String::new();
    let read = io::stderr()
        .write_all(what.as_bytes())
        .and_then(|()| io::stdin().lock().read_line(&mut line));
    drop(before);
    // The line end of who answered was hidden, too.
    let _ = io::stderr().write_all(b"\n");
    read?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// How the terminal was before; it is so again when this is dropped.
struct Shown(libc::termios);

impl Shown {
    fn hide() -> io::Result<Self> {
        let mut state = MaybeUninit::<libc::termios>::uninit();
        // SAFETY: the call writes a whole termios where it succeeds, and it is read only then.
        let state = unsafe {
            if libc::tcgetattr(libc::STDIN_FILENO, state.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            state.assume_init()
        };
        let mut hidden = state;
        hidden.c_lflag &= !libc::ECHO;
        set(&hidden)?;
        Ok(Self(state))
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = set(&self.0);
    }
}

fn set(state: &libc::termios) -> io::Result<()> {
    // SAFETY: the call reads the termios, which lives longer than it.
    let done = unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSAFLUSH, state) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
