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
	mu   sync.Mutex
	docs map[string]decoded
}

type decoded struct {
	data   []byte
	record *brig.Record
}

// maxKnown is how many documents are remembered, of some kilobytes each.
const maxKnown = 1000

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
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.docs == nil || len(k.docs) >= maxKnown {
		k.docs = map[string]decoded{}
	}
	k.docs[doc] = decoded{data, r}
	return contract.CloneRecord(r), nil
}
