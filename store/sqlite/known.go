package sqlite

import (
	"bytes"
	"sync"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// known remembers what documents of sandboxes say. Every call reads one, which is
// mostly as it was; to decode it takes longer than to find it. It is the file that
// says what is so: other processes may write it.
type known struct {
	mu   sync.Mutex // guards the fields below
	docs map[string]decoded
	size int // of the documents, with their data
}

type decoded struct {
	data   []byte
	record *brig.Record
}

// What is remembered, in bytes: sandboxes may have a megabyte of environment, and
// each change makes another document.
const (
	maxKnown    = 8 << 20
	maxKnownDoc = 64 << 10
)

// record is decode for a sandbox.
func (k *known) record(doc string, data []byte) (*brig.Record, error) {
	k.mu.Lock()
	d, ok := k.docs[doc]
	k.mu.Unlock()
	if ok && bytes.Equal(d.data, data) {
		return contract.CloneRecord(d.record), nil
	}
	r, err := decode[brig.Record](doc, data)
	if err != nil {
		return nil, err
	}
	size := len(doc) + len(data)
	if size > maxKnownDoc {
		return r, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.size += size; k.docs == nil || k.size > maxKnown {
		k.docs, k.size = map[string]decoded{}, size
	}
	k.docs[doc] = decoded{data, r}
	return contract.CloneRecord(r), nil
}
