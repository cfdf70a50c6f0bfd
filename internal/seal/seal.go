// Package seal encrypts small values with keys that can be rotated while values sealed with
// older keys still exist. A sealed value is bound to its location: the name under which it is
// stored is authenticated data. Therefore, a row that was moved within a database no longer
// decrypts. Large data is sealed as a stream with its own key, and that key is sealed as a
// small value.
package seal

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
)

// KeySize is the size of a key, in bytes: AES-256.
const KeySize = 32

var (
	// ErrUnknownKey means that the key of a sealed value is not on the ring.
	ErrUnknownKey = errors.New("sealed with a key that is not known")
	// ErrForged means that a value was modified or moved from its location, or
	// that a key does not match its name.
	ErrForged = errors.New("the sealed value does not open")
	// ErrFixed means that the source of the keys is read-only.
	ErrFixed = errors.New("keys of this source cannot be rotated")
)

// Source stores the keys of a ring. The first key is used to seal values.
type Source interface {
	// Keys returns all keys. On the first start it may generate one.
	Keys(ctx context.Context) ([][]byte, error)
	// Put durably replaces the keys. It returns ErrFixed if the source is
	// read-only.
	Put(ctx context.Context, keys [][]byte) error
}

// Keyring seals with its first key and opens with any of its keys.
type Keyring struct {
	source   Source
	rotateMu sync.Mutex // one rotation at a time

	mu      sync.RWMutex // guards the fields below
	keys    [][]byte
	ciphers map[string]cipher.AEAD
}

// Open loads the keys of a source.
func Open(ctx context.Context, s Source) (*Keyring, error) {
	keys, err := s.Keys(ctx)
	if err != nil {
		return nil, err
	}
	k := &Keyring{source: s}
	return k, k.set(keys)
}

func (k *Keyring) set(keys [][]byte) error {
	if len(keys) == 0 {
		return errors.New("there is no key")
	}
	by := map[string]cipher.AEAD{}
	for i, key := range keys {
		if len(key) != KeySize {
			return fmt.Errorf("key %d has %d bytes, not %d", i+1, len(key), KeySize)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return err
		}
		if by[nameOf(key)], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys, k.ciphers = keys, by
	return nil
}

// nameOf returns the name of a key. The name reveals no information about the
// key.
func nameOf(key []byte) string {
	sum := sha256.Sum256(append([]byte("brig seal key\x00"), key...))
	return "k" + hex.EncodeToString(sum[:8])
}

// Primary returns the name of the key that currently seals values.
func (k *Keyring) Primary() string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return nameOf(k.keys[0])
}

// Seal encrypts a value for the location named by where, and returns the name
// of the key.
func (k *Keyring) Seal(value []byte, where ...string) (key string, sealed []byte) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	key = nameOf(k.keys[0])
	return key, k.ciphers[key].Seal(nil, nil, value, encodeLocation(where))
}

// Open decrypts a value that Seal returned for the same location.
func (k *Keyring) Open(key string, sealed []byte, where ...string) ([]byte, error) {
	k.mu.RLock()
	aead := k.ciphers[key]
	k.mu.RUnlock()
	if aead == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknownKey, key)
	}
	value, err := aead.Open(nil, nil, sealed, encodeLocation(where))
	if err != nil {
		return nil, ErrForged
	}
	return value, nil
}

// encodeLocation encodes names so that different lists have different encodings.
func encodeLocation(names []string) []byte {
	var b []byte
	for _, n := range names {
		b = binary.BigEndian.AppendUint32(b, uint32(len(n)))
		b = append(b, n...)
	}
	return b
}

// Rotate adds a new first key, calls move to reseal all values, and then
// removes the older keys. If move fails, the older keys persist, and a later
// call can complete the rotation.
func (k *Keyring) Rotate(ctx context.Context, move func() error) error {
	k.rotateMu.Lock()
	defer k.rotateMu.Unlock()
	fresh := make([]byte, KeySize)
	_, _ = rand.Read(fresh) // never fails
	k.mu.RLock()
	all := append([][]byte{fresh}, k.keys...)
	k.mu.RUnlock()
	if err := k.source.Put(ctx, all); err != nil {
		return err
	}
	if err := k.set(all); err != nil {
		return err
	}
	if err := move(); err != nil {
		return err
	}
	if err := k.source.Put(ctx, all[:1]); err != nil {
		return err
	}
	return k.set(all[:1])
}

// HasKey reports whether a key is on the ring.
func (k *Keyring) HasKey(key string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.ciphers[key] != nil
}
