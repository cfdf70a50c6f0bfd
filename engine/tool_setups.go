package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/seal"
	"github.com/brig-run/brig/tool"
)

// maxToolVariables is the maximum number of variables of a setup.
var maxToolVariables = 500

// newToolID returns a random UUID, the format of IDs that Letta's clients
// expect.
func newToolID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// PutToolSetup implements brig.Service.
func (ts *tools) PutToolSetup(ctx context.Context, s brig.ToolSetup) (*brig.ToolSetup, error) {
	return doWithDetails(ctx, ts.gate, brig.OpPutToolSetup, "", withDetail(brig.DetailName, truncate(s.ID)), func(v *call) (_ *brig.ToolSetup, err error) {
		done, err := v.account.lockRecords(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
		kind := s.Kind
		var config json.RawMessage
		switch {
		case s.ID != "":
			old, err := ts.Store.GetToolSetup(ctx, v.actor.Tenant, s.ID)
			if err != nil {
				return nil, err
			}
			if kind = old.Kind; s.Kind != "" && s.Kind != kind {
				return nil, brig.InvalidField("type", "a setup of kind %s cannot change to %s", kind, truncate(string(s.Kind))).WithHint("make one of that kind, and remove this one")
			}
			config, err = tool.ParseConfigOfKind(kind, s.Config)
			if err != nil {
				return nil, err
			}
		case kind == "":
			if kind, config, err = tool.ParseConfig(s.Config); err != nil {
				return nil, err
			}
		default:
			if err := checkKind(kind); err != nil {
				return nil, err
			}
			if len(s.Config) == 0 {
				s.Config = tool.Default(kind)
			}
			if config, err = tool.ParseConfigOfKind(kind, s.Config); err != nil {
				return nil, err
			}
		}
		now := ts.Now().UTC()
		put := &brig.ToolSetup{
			ID: newToolID(), Tenant: v.actor.Tenant, Kind: kind, Config: config,
			Created: now, Updated: now, CreatedBy: v.actor.Name, UpdatedBy: v.actor.Name,
		}
		v.addDetail(brig.DetailName, string(kind))
		return put, ts.Store.PutToolSetup(ctx, put, v.outcomeEvent())
	})
}

func checkKind(kind brig.ToolKind) error {
	for _, k := range brig.ToolKinds {
		if k == kind {
			return nil
		}
	}
	return brig.InvalidField("type", "no kind of setup %q", truncate(string(kind))).WithHint("use one of: %v", brig.ToolKinds)
}

// ToolSetups implements brig.Service.
func (ts *tools) ToolSetups(ctx context.Context) ([]*brig.ToolSetup, error) {
	return do(ctx, ts.gate, brig.OpToolSetups, "", func(v *call) ([]*brig.ToolSetup, error) {
		return ts.Store.ToolSetups(ctx, v.actor.Tenant)
	})
}

// RenewToolSetup implements brig.Service.
func (ts *tools) RenewToolSetup(ctx context.Context, kind brig.ToolKind) (*brig.ToolSetup, error) {
	return doWithDetails(ctx, ts.gate, brig.OpRenewToolSetup, "", withDetail(brig.DetailName, truncate(string(kind))), func(v *call) (*brig.ToolSetup, error) {
		if err := checkKind(kind); err != nil {
			return nil, err
		}
		list, err := ts.Store.ToolSetups(ctx, v.actor.Tenant)
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			if s.Kind == kind {
				for _, x := range ts.boxes.removeIdle(v.actor.Tenant, kind) {
					ts.endBox(ctx, x)
				}
				return s, nil
			}
		}
		return nil, brig.Errorf(brig.NotFound, "there is no setup of the kind %s", kind).WithHint("make one first")
	})
}

// RemoveToolSetup implements brig.Service.
func (ts *tools) RemoveToolSetup(ctx context.Context, id string) error {
	return ts.doWithDetails(ctx, brig.OpRemoveToolSetup, "", withDetail(brig.DetailName, truncate(id)), func(v *call) error {
		s, err := ts.Store.GetToolSetup(ctx, v.actor.Tenant, id)
		if err != nil {
			return err
		}
		if err := ts.Store.DeleteToolSetup(ctx, v.actor.Tenant, id, v.outcomeEvent()); err != nil {
			return err
		}
		for _, x := range ts.boxes.removeIdle(v.actor.Tenant, s.Kind) {
			ts.endBox(ctx, x)
		}
		return nil
	})
}

// PutToolVariable implements brig.Service.
func (ts *tools) PutToolVariable(ctx context.Context, x brig.ToolVariable) (*brig.ToolVariable, error) {
	return doWithDetails(ctx, ts.gate, brig.OpPutToolVariable, "", withDetail(brig.DetailName, truncate(x.Key)), func(v *call) (*brig.ToolVariable, error) {
		done, err := v.account.lockRecords(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
		existing, err := ts.Store.ToolVariables(ctx, v.actor.Tenant, x.Setup)
		if err != nil {
			return nil, err
		}
		index := slices.IndexFunc(existing, func(h *brig.SealedToolVariable) bool { return h.Key == x.Key })
		if index >= 0 && x.Description == "" {
			x.Description = existing[index].Description // an update without a description keeps the old one
		}
		if index < 0 && len(existing) >= maxToolVariables {
			return nil, brig.InvalidField("key", "a setup has at most %d variables", maxToolVariables).WithHint("remove some")
		}
		x.ID = newToolID()
		return ts.storeVariable(ctx, v, x, ts.Store.PutToolVariable)
	})
}

// ChangeToolVariable implements brig.Service.
func (ts *tools) ChangeToolVariable(ctx context.Context, id string, c brig.ToolVariableChange) (*brig.ToolVariable, error) {
	return doWithDetails(ctx, ts.gate, brig.OpChangeToolVariable, "", withDetail(brig.DetailName, truncate(id)), func(v *call) (_ *brig.ToolVariable, err error) {
		done, err := v.account.lockRecords(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
		old, err := ts.Store.GetToolVariable(ctx, v.actor.Tenant, id)
		if err != nil {
			return nil, err
		}
		x := old.ToolVariable
		if x.Value, err = ts.unsealVariable(old); err != nil && c.Value == nil {
			return nil, err
		}
		for _, part := range []struct{ from, to *string }{{c.Key, &x.Key}, {c.Value, &x.Value}, {c.Description, &x.Description}} {
			if part.from != nil {
				*part.to = *part.from
			}
		}
		// If another call removes the variable first, it remains removed.
		out, err := ts.storeVariable(ctx, v, x, ts.Store.ChangeToolVariable)
		if err == nil && c.Value == nil && v.actor.Authorize(brig.OpToolVariables) != nil {
			out.Value = "" // a caller that may not list values must not learn the value by a change
		}
		return out, err
	})
}

// storeVariable stores a variable, with its value encrypted.
func (ts *tools) storeVariable(ctx context.Context, v *call, x brig.ToolVariable, write func(context.Context, *brig.SealedToolVariable, ...brig.Event) error) (*brig.ToolVariable, error) {
	if err := ts.vault.checkSecretsStored(); err != nil {
		return nil, err
	}
	if x.Key == "" {
		return nil, brig.InvalidField("key", "it is empty").WithHint("for example API_KEY")
	}
	if err := brig.CheckEnv("key", map[string]string{x.Key: x.Value}); err != nil {
		return nil, err
	}
	if len(x.Value) > brig.MaxSecret || len(x.Description) > 4096 || len(x.Key) > 256 {
		return nil, brig.InvalidField("value", "the variable is too long").WithHint("a key has up to 256 bytes, a description 4096 and a value %s", brig.FormatBytes(int64(brig.MaxSecret)))
	}
	now := ts.Now().UTC()
	x.Tenant, x.Updated, x.UpdatedBy = v.actor.Tenant, now, v.actor.Name
	if x.Created.IsZero() {
		x.Created, x.CreatedBy = now, v.actor.Name
	}
	// Wait while another call re-encrypts all values, because a value written
	// at the same time would keep the old key.
	ts.vault.resealMu.RLock()
	defer ts.vault.resealMu.RUnlock()
	value := x.Value
	x.Value = ""
	kept := &brig.SealedToolVariable{ToolVariable: x}
	ts.sealVariable(kept, value)
	if err := write(ctx, kept, v.outcomeEvent()); err != nil {
		return nil, err
	}
	out := kept.ToolVariable
	out.Value = value
	return &out, nil
}

// variableLocation returns the location of a variable's value, to which its
// encryption is bound. It does not include the ID, which may change during the
// write.
func variableLocation(x *brig.SealedToolVariable) []string {
	return []string{"tools", x.Tenant, x.Setup, x.Key}
}

func (ts *tools) sealVariable(x *brig.SealedToolVariable, value string) {
	x.SealedBy, x.Sealed = ts.Options.Keys.Seal([]byte(value), variableLocation(x)...)
}

// unsealVariable decrypts a variable's value.
func (ts *tools) unsealVariable(x *brig.SealedToolVariable) (string, error) {
	if err := ts.vault.checkSecretsStored(); err != nil {
		return "", err
	}
	value, err := ts.Options.Keys.Open(x.SealedBy, x.Sealed, variableLocation(x)...)
	if err != nil {
		reason := "what is kept of it was changed"
		if errors.Is(err, seal.ErrUnknownKey) {
			reason = "it was encrypted with a key that this server does not have"
		}
		return "", brig.Errorf(brig.FailedPrecondition, "the variable %q of tools does not open: %s", truncate(x.Key), reason).
			WithHint("set it again").Because(err)
	}
	return string(value), nil
}

// ToolVariables implements brig.Service.
func (ts *tools) ToolVariables(ctx context.Context, setup string) ([]*brig.ToolVariable, error) {
	return do(ctx, ts.gate, brig.OpToolVariables, "", func(v *call) (_ []*brig.ToolVariable, err error) {
		if _, err := ts.Store.GetToolSetup(ctx, v.actor.Tenant, setup); err != nil {
			return nil, err
		}
		list, err := ts.Store.ToolVariables(ctx, v.actor.Tenant, setup)
		if err != nil {
			return nil, err
		}
		out := make([]*brig.ToolVariable, 0, len(list))
		for _, x := range list {
			shown := x.ToolVariable
			if shown.Value, err = ts.unsealVariable(x); err != nil {
				return nil, err
			}
			out = append(out, &shown)
		}
		return out, nil
	})
}

// RemoveToolVariable implements brig.Service.
func (ts *tools) RemoveToolVariable(ctx context.Context, id string) error {
	return ts.doWithDetails(ctx, brig.OpRemoveToolVariable, "", withDetail(brig.DetailName, truncate(id)), func(v *call) error {
		return ts.Store.DeleteToolVariable(ctx, v.actor.Tenant, id, v.outcomeEvent())
	})
}

// resealVariables re-encrypts the values of all variables with the newest key.
func (ts *tools) resealVariables(ctx context.Context) error {
	list, err := ts.Store.AllToolVariables(ctx)
	if err != nil {
		return err
	}
	for _, x := range list {
		if x.SealedBy == ts.Options.Keys.Primary() {
			continue
		}
		value, err := ts.unsealVariable(x)
		if err != nil {
			return err
		}
		ts.sealVariable(x, value)
		if err := ts.Store.ChangeToolVariable(ctx, x); err != nil && brig.KindOf(err) != brig.NotFound { // removed since it was listed
			return err
		}
	}
	return nil
}
