//! What a receiver tells the sender about one path. Plain numbers; the layout on the wire is the
//! business of whoever sends it.

/// Chunks judged: whether each arrived or was lost is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Chunks judged.
    pub judged: u32,
    /// Of these, lost.
    pub lost: u32,
    /// Runs of losses.
    pub runs: u32,
    /// Windows of [`crate::model::WINDOW_CHUNKS`] chunks judged whole.
    pub windows: u32,
    /// Losses in these windows.
    pub window_losses: u32,
    /// Sum of the squares of the losses of each.
    pub window_squares: u32,
}

/// What happened on one path since the report before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What was judged while the path's queue was short.
    pub clear: Losses,
    /// What was judged while its queue was long: losses here may be congestion.
    pub queued: Losses,
    /// By how much chunks came late behind younger ones: the most in the last seconds.
    pub reorder_us: u32,
    /// Delay above the smallest of the last half minute that even the quickest chunks had.
    pub queue_us: u32,
    /// Data chunks that were missing when their block was complete, rebuilt or given up.
    pub missing: u32,
    /// Of these, rebuilt.
    pub rebuilt: u32,
}
