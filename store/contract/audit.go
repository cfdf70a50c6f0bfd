package contract

import (
	"encoding/hex"
	"strconv"
	"time"

	"github.com/brig-run/brig"
)

// AuditLimit returns the size of the page that is asked for.
func AuditLimit(q brig.AuditQuery) (int, error) { return Limit(brig.ListOptions{Limit: q.Limit}) }

// Pruned is the event that stands for the beginning of a chain, up to the line
// of that number and hash.
func Pruned(tenant string, now time.Time, upTo int64, hash []byte) brig.Event {
	return brig.Event{At: now, Op: brig.PrunedOp, Tenant: tenant, Phase: brig.Observed, Detail: map[string]string{
		brig.DetailPruned: strconv.FormatInt(upTo, 10), brig.DetailPrunedHash: hex.EncodeToString(hash),
	}}
}
