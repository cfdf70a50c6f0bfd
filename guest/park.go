package guest

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// parkTimeout is the maximum time for an interpreter to take its new descriptors. The agent's own
// timeout is shorter.
const parkTimeout = 10 * time.Second

// Park replaces the descriptors of an interpreter, which belong to the host, by descriptors that
// the agent holds. Its sandbox can then be saved. The function tell requests that the interpreter
// open the pipes in a directory of the guest. After an error p is unchanged, unless the agent was
// lost. The error is NotFound if the interpreter has ended. Output of p that was not read is lost.
func (g *Guest) Park(ctx context.Context, p *Process, notify func(dir string) error) (*CarriedProcess, error) {
	ctx, cancel := context.WithTimeout(ctx, parkTimeout)
	defer cancel()
	conn, end, err := g.call(ctx, wire.Call{Op: wire.OpPark, ID: p.id})
	if err != nil {
		return nil, err
	}
	defer end()
	r := wire.NewReader(conn)
	f, err := r.Read()
	if err != nil {
		return nil, causeOrError(ctx, err)
	}
	if f.Type == wire.TypeError {
		return nil, parkError(f.Payload)
	}
	var parking wire.Parking
	if f.Type != wire.TypeParking {
		return nil, newViolation("unexpected frame %d", f.Type)
	}
	if err := json.Unmarshal(f.Payload, &parking); err != nil {
		return nil, newMalformedError("parking", err)
	}
	// An interpreter that is exiting may ignore the request. The agent then responds as soon as it
	// detects the exit.
	tellErr := notify(parking.Dir)
	if f, err = r.Read(); err != nil {
		return nil, cmp.Or(tellErr, causeOrError(ctx, err))
	}
	if f.Type == wire.TypeError {
		err = parkError(f.Payload)
	} else {
		err = endOf(f)
	}
	if tellErr != nil && brig.KindOf(err) != brig.NotFound {
		err = tellErr
	}
	if err != nil {
		return nil, err
	}
	return g.ReattachCarried(ctx, p.id)
}

// parkError returns an agent's error, which is NotFound if the interpreter has ended. Agents of
// earlier versions reject the call with another error.
func parkError(payload []byte) error {
	err := decodeAgentError(payload)
	var e wire.Error
	if json.Unmarshal(payload, &e) == nil && e.Kind == "not_found" {
		return brig.Errorf(brig.NotFound, "the interpreter has ended").Because(err)
	}
	return err
}
