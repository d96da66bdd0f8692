//! The handshake's authenticated encryption: ChaCha20-Poly1305 with an all-zero nonce, under keys
//! used once, and XChaCha20-Poly1305 for cookies.
