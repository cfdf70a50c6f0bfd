package sqlite

import (
	"bytes"
	"sync"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// recordCache caches decoded sandbox documents. Every call reads a document, the document
// rarely changes, and decoding takes longer than reading. The database is authoritative,
// because other processes may write to it.
type recordCache struct {
	mu   sync.Mutex // guards the fields below
	docs map[string]decoded
	size int // total size of the documents, including their data
}

type decoded struct {
	data   []byte
	record *brig.Record
}

// The limits of the cache are in bytes, because a sandbox may have a megabyte of environment,
// and each change creates another document.
const (
	maxKnown    = 8 << 20
	maxKnownDoc = 64 << 10
)

// record decodes a sandbox document, or returns it from the cache.
func (k *recordCache) record(doc string, data []byte) (*brig.Record, error) {
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
