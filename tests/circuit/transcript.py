"""Reads the transcript of a circuit and makes every frame of it again, from docs/circuits.md and
docs/wire.md alone: Noise NK, layers, masks, cells. Nothing but Python's own library is used."""

import hashlib
import hmac
import struct
import sys

P = 2**255 - 19


def x25519(scalar, point):
    k = bytearray(scalar)
    k[0] &= 248
    k[31] = k[31] & 127 | 64
    k = int.from_bytes(k, "little")
    u = int.from_bytes(point, "little") & (2**255 - 1)
    x2, z2, x3, z3, swap = 1, 0, u, 1, 0
    for t in reversed(range(255)):
        bit = k >> t & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b = x2 + z2, x2 - z2
        aa, bb = a * a % P, b * b % P
        e = aa - bb
        da, cb = (x3 - z3) * a % P, (x3 + z3) * b % P
        x3, z3 = (da + cb) ** 2 % P, u * (da - cb) ** 2 % P
        x2, z2 = aa * bb % P, e * (aa + 121665 * e) % P
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")


def public(private):
    return x25519(private, bytes([9]) + bytes(31))


def rotl(x, n):
    return (x << n | x >> 32 - n) & 0xFFFFFFFF


def chacha_block(key, counter, nonce):
    state = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574]
    state += struct.unpack("<8I", key) + (counter,) + struct.unpack("<3I", nonce)
    x = list(state)
    for _ in range(10):
        for a, b, c, d in [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
                           (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]:
            for to, by, of, n in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)]:
                x[to] = x[to] + x[by] & 0xFFFFFFFF
                x[of] = rotl(x[of] ^ x[to], n)
    return struct.pack("<16I", *(a + b & 0xFFFFFFFF for a, b in zip(x, state)))


def seal(key, number, plain, associated=b""):
    nonce = bytes(4) + struct.pack("<Q", number)
    stream = b"".join(chacha_block(key, 1 + i, nonce) for i in range((len(plain) + 63) // 64))
    sealed = bytes(a ^ b for a, b in zip(plain, stream))
    one = chacha_block(key, 0, nonce)[:32]
    r = int.from_bytes(one[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    s, total = int.from_bytes(one[16:], "little"), 0
    pad = lambda b: b + bytes(-len(b) % 16)
    data = pad(associated) + pad(sealed) + struct.pack("<QQ", len(associated), len(sealed))
    for i in range(0, len(data), 16):
        total = (total + int.from_bytes(data[i:i + 16] + b"\1", "little")) * r % (2**130 - 5)
    return sealed + ((total + s) % 2**128).to_bytes(16, "little")


def kdf(count, key, data):
    secret = hmac.new(key, data, hashlib.blake2s).digest()
    out, last = [], b""
    for i in range(count):
        last = hmac.new(secret, last + bytes([i + 1]), hashlib.blake2s).digest()
        out.append(last)
    return out


def blake(*parts):
    return hashlib.blake2s(b"".join(parts)).digest()


class Noise:
    """Noise_NK_25519_ChaChaPoly_BLAKE2s, both messages at once, with both ends' secrets."""

    def __init__(self, ephemeral, hop_private, hop_ephemeral, said):
        hop = public(hop_private)
        self.chain = self.hash = blake(b"Noise_NK_25519_ChaChaPoly_BLAKE2s")
        self.mix(b"Warren circuit v1")
        self.mix(hop)
        own = public(ephemeral)
        self.mix(own)
        self.first = own + self.put(x25519(ephemeral, hop), b"")
        theirs = public(hop_ephemeral)
        self.mix(theirs)
        self.second = theirs + self.put(x25519(ephemeral, theirs), said)
        self.forth, self.back = kdf(2, self.chain, b"")

    def mix(self, data):
        self.hash = blake(self.hash, data)

    def put(self, shared, plain):
        self.chain, key = kdf(2, self.chain, shared)
        sealed = seal(key, 0, plain, self.hash)
        self.mix(sealed)
        return sealed


class Layer:
    """The keys of the first epoch: of what goes on, and of a hop's own messages."""

    def __init__(self, secret):
        self.keys = []
        for chain in kdf(2, secret, b"layers"):
            _, relay, own = kdf(3, chain, b"cells")
            self.keys.append((relay, own))

    def relay(self, number, body):
        return seal(self.keys[number % 2][0], number, body)

    def own(self, number, body):
        return seal(self.keys[1][1], number, body)


def masked(key, number, body):
    block = chacha_block(key, struct.unpack("<I", body[:4])[0], body[4:16])
    return bytes(a ^ b for a, b in zip(struct.pack("<Q", number)[:5], block))


def cell(index, mask, number, body):
    size = next(size for size in (192, 576, 1408) if len(body) <= size)
    head = b"\x8e" + bytes([len(body) // 16]) + struct.pack("<I", index)
    return head + masked(mask, number, body) + body + bytes(size - len(body))


def build(what, index, rest):
    return (b"\x8f" + bytes([what]) + struct.pack("<I", index) + rest).ljust(587, b"\0")


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def readdressed(packet, source, destination, hop_limit):
    """UDP without options whose addresses and hop limit are others, with its checksums made anew."""
    head = bytearray(packet[:20])
    head[8], head[10:12] = hop_limit, b"\0\0"
    head[12:20] = source + destination
    head[10:12] = struct.pack("!H", checksum(bytes(head)))
    rest = bytearray(packet[20:])
    rest[6:8] = b"\0\0"
    pseudo = source + destination + struct.pack("!BBH", 0, 17, len(rest))
    summed = checksum(pseudo + bytes(rest) + bytes(len(rest) % 2))
    rest[6:8] = struct.pack("!H", summed or 0xFFFF)
    return bytes(head) + bytes(rest)


def main(path):
    privates, draws, frames, packets = {}, [], [], {}
    for line in open(path):
        kind, *words = line.split()
        if kind == "private":
            privates[int(words[0])] = bytes.fromhex(words[1])
        elif kind == "draw":
            draws.append(bytes.fromhex(words[0]))
        elif kind == "frame":
            frames.append((int(words[0]), int(words[1]), bytes.fromhex(words[2])))
        else:
            packets[kind] = bytes.fromhex(words[0])
    count = len(frames)

    def expect(sender, receiver, made):
        was = frames.pop(0)
        at = count - len(frames)
        assert was[:2] == (sender, receiver), f"frame {at}: {was[:2]}, not {(sender, receiver)}"
        for i, (a, b) in enumerate(zip(was[2], made)):
            assert a == b, f"frame {at}, byte {i}: {a:02x}, not {b:02x}"
        assert len(was[2]) == len(made), f"frame {at}: {len(was[2])} bytes, not {len(made)}"

    def peek(at):
        """An index that somebody drew when its neighbour was made known: the first bytes say it."""
        return struct.unpack("<I", frames[0][2][at:at + 4])[0]

    masks = [draws[0], draws[4], draws[7]]
    ephemerals = [draws[1], draws[3], draws[6]]
    hop_ephemerals = [draws[2], draws[5], draws[8]]
    said = [bytes([198, 19, 0, 1, 3]).ljust(32, b"\0")] * 3
    noises = [Noise(ephemerals[i], privates[i + 1], hop_ephemerals[i], said[i]) for i in range(3)]
    forth = [Layer(noise.forth) for noise in noises]
    back = [Layer(noise.back) for noise in noises]
    # The index that each has at its side toward the client, and at the other.
    toward, beyond = [0] * 3, [0] * 3

    def control(number, word, size, depth):
        body = forth[depth].own(number, word.ljust(size, b"\0"))
        bodies = {depth: body}
        for i in range(depth - 1, 0, -1):
            body = forth[i].relay(number, body)
            bodies[i] = body
        # The entry has no layer: it hands on what it was handed.
        bodies[0] = body
        for i in range(depth + 1):
            expect(i, i + 1, cell(toward[i], masks[i], number, bodies[i]))

    def answer(number, word, size, depth):
        body = back[depth].own(number, word.ljust(size, b"\0"))
        for i in range(depth, -1, -1):
            if i < depth and i > 0:
                body = back[i].relay(number, body)
            expect(i + 1, i, cell(beyond[i], masks[i], number, body))

    number = 1
    for i in range(3):
        if i > 0:
            control(number, b"\1" + public(privates[i + 1]) + noises[i].first, 448, i - 1)
        beyond[i] = peek(2)
        flags = bytes([1 if i else 0])
        expect(i, i + 1, build(1, beyond[i], flags + masks[i] + noises[i].first))
        toward[i] = peek(6)
        expect(i + 1, i, build(2, beyond[i], struct.pack("<I", toward[i]) + noises[i].second))
        if i > 0:
            answer(number, b"\2" + noises[i].second, 448, i - 1)
            number += 2
    # The first question, with the largest packet that the client takes in its low 16 bits.
    room = 1408 - 2 * 16
    token = struct.unpack("<Q", draws[9])[0] & ~0xFFFF | room
    control(number, b"\4" + struct.pack("<Q", token), 64, 2)
    answer(number, b"\5" + struct.pack("<Q", token), 64, 2)

    own, server = packets["sends"][12:16], packets["sends"][16:20]
    address = bytes([198, 19, 0, 1])
    packet = readdressed(packets["sends"], address, server, 64)
    number = number + 1
    inner = 80
    body2 = forth[2].relay(number, packet.ljust(inner, b"\0"))
    body1 = forth[1].relay(number, body2)
    for i, body in enumerate([body1, body1, body2]):
        expect(i, i + 1, cell(toward[i], masks[i], number, body))
    left = packets["leaves"]
    assert left[12:16] == bytes([198, 18, 255, 1]) and left[28:] == b"there", left.hex()

    came = packets["comes"]
    assert came[28:] == b"and back" and came[12:16] == server and came[16:20] == own, came.hex()
    packet = readdressed(came, server, address, came[8])
    body = packet.ljust(inner, b"\0")
    for i in (2, 1, 0):
        if i > 0:
            body = back[i].relay(0, body)
        expect(i + 1, i, cell(beyond[i], masks[i], 0, body))
    for i in range(3):
        expect(i, i + 1, build(4, toward[i], b"\1"))
    assert not frames, f"{len(frames)} frames are left"
    print(f"{count} frames are as the documents say")


main(sys.argv[1])
