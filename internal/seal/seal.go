// Package seal encrypts small values under keys that can be changed while
// values sealed under older ones are still there. A value opens only for whom
// it was sealed: the name under which it is kept is authenticated with it, so
// that a row that was moved in a database opens no more.
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
	// ErrUnknownKey means that the key with which a value was sealed is not
	// on the ring.
	ErrUnknownKey = errors.New("sealed with a key that is not known")
	// ErrForged means that a value was changed, or is not where it was sealed
	// for, or that a key is not what its name says.
	ErrForged = errors.New("the sealed value does not open")
	// ErrFixed means that keys come from where none can be added.
	ErrFixed = errors.New("keys of this source cannot be rotated")
)

// Source keeps the keys of a ring, the one to seal with first.
type Source interface {
	// Keys returns all keys. The first start may make one.
	Keys(ctx context.Context) ([][]byte, error)
	// Put replaces the keys, durably. ErrFixed where that cannot be.
	Put(ctx context.Context, keys [][]byte) error
}

// Keyring seals with its first key and opens with all.
type Keyring struct {
	source Source
	change sync.Mutex // one rotation at a time

	mu   sync.RWMutex // guards the fields below
	keys [][]byte
	by   map[string]cipher.AEAD
}

// Open reads the keys of a source.
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
	k.keys, k.by = keys, by
	return nil
}

// nameOf names a key. It tells nothing of it.
func nameOf(key []byte) string {
	sum := sha256.Sum256(append([]byte("brig seal key\x00"), key...))
	return "k" + hex.EncodeToString(sum[:8])
}

// Primary names the key that values are sealed with.
func (k *Keyring) Primary() string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return nameOf(k.keys[0])
}

// Seal encrypts a value for the place that where names, and names the key.
func (k *Keyring) Seal(value []byte, where ...string) (key string, sealed []byte) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	key = nameOf(k.keys[0])
	return key, k.by[key].Seal(nil, nil, value, place(where))
}

// Open decrypts what Seal returned for the same place.
func (k *Keyring) Open(key string, sealed []byte, where ...string) ([]byte, error) {
	k.mu.RLock()
	aead := k.by[key]
	k.mu.RUnlock()
	if aead == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknownKey, key)
	}
	value, err := aead.Open(nil, nil, sealed, place(where))
	if err != nil {
		return nil, ErrForged
	}
	return value, nil
}

// place writes names so that no two lists are the same bytes.
func place(names []string) []byte {
	var b []byte
	for _, n := range names {
		b = binary.BigEndian.AppendUint32(b, uint32(len(n)))
		b = append(b, n...)
	}
	return b
}

// Rotate puts a new key first, has move seal everything anew, and then lets go
// of the older keys. When move fails they stay, and a later call goes on.
func (k *Keyring) Rotate(ctx context.Context, move func() error) error {
	k.change.Lock()
	defer k.change.Unlock()
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

// Has reports whether a key is on the ring.
func (k *Keyring) Has(key string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.by[key] != nil
}
