//! Routes for a backup that is taken elsewhere: one makes a copy, one reads it in pieces, one
//! removes it. Who reads it has the server's keys.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::handlers::Answer;
use super::{Call, Problem, Reply};

fn refused(error: &io::Error) -> Problem {
    if error.kind() == io::ErrorKind::Unsupported {
        return Problem::new(501, "these books are copied in another way", error);
    }
    tracing::error!(%error, "no backup");
    Problem::new(503, "the server cannot do it now", error)
}

fn gone() -> Problem {
    let detail = "it was removed, or another was begun; begin again";
    Problem::new(404, "there is no such backup", detail)
}

pub(super) fn make(call: &Call) -> Answer {
    let (id, len) = call.app.copies.make(call.app.moment()).map_err(|error| refused(&error))?;
    let noted = call.app.store().note_backup(id, &call.actor, call.app.now());
    if let Err(error) = noted {
        call.app.copies.end(id);
        return Err(error.into());
    }
    Ok(Reply::Created(json!({ "schema": 1, "id": id, "bytes": len })))
}

pub(super) fn read(call: &Call) -> Answer {
    let offset = call.number("offset")?.unwrap_or(0);
    let piece = call.app.copies.piece(call.id, offset).map_err(|error| refused(&error))?;
    let (piece, len) = piece.ok_or_else(gone)?;
    let data = STANDARD.encode(&piece);
    Ok(Reply::Json(json!({ "schema": 1, "bytes": len, "offset": offset, "data": data })))
}

pub(super) fn end(call: &Call) -> Answer {
    if call.app.copies.end(call.id) { Ok(Reply::Empty) } else { Err(gone()) }
}
