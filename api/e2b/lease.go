package e2b

import (
	"context"
	"net/http"
	"time"

	"github.com/brig-run/brig"
)

// timeout moves the end of a sandbox to any moment, also to an earlier one.
func (d *Door) timeout(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Timeout *int64 `json:"timeout"`
	}
	s, err := d.find(r)
	if err != nil {
		return err
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	if in.Timeout == nil {
		return brig.InvalidField("timeout", "it is required")
	}
	if *in.Timeout <= 0 {
		err = d.end(r.Context(), s)
	} else {
		err = d.extend(r.Context(), s, *in.Timeout)
	}
	if err != nil {
		return err
	}
	none(w)
	return nil
}

// extend lets a sandbox end so many seconds from now.
func (d *Door) extend(ctx context.Context, s *brig.Sandbox, seconds int64) error {
	ttl, err := d.lease(seconds)
	if err != nil {
		return err
	}
	_, err = d.Service.Extend(ctx, string(s.ID), ttl)
	return ended(s.ID, err)
}

// prolong is extend that never shortens.
func (d *Door) prolong(ctx context.Context, s *brig.Sandbox, seconds int64) error {
	ttl, err := d.lease(seconds)
	if err != nil || !time.Now().Add(ttl).After(s.Expires) {
		return err
	}
	return d.extend(ctx, s, seconds)
}

// refresh is how clients of old prolonged a sandbox.
func (d *Door) refresh(w http.ResponseWriter, r *http.Request) error {
	in := struct {
		Duration int64 `json:"duration"`
	}{leaseV1}
	s, err := d.find(r)
	if err != nil {
		return err
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	if in.Duration < 0 {
		return brig.InvalidField("duration", "it is negative")
	}
	if err := d.prolong(r.Context(), s, in.Duration); err != nil {
		return err
	}
	none(w)
	return nil
}

// connect gives a client what it needs to use a sandbox, which lives that
// long at least. None is ever paused, so it says 200 and never 201.
func (d *Door) connect(w http.ResponseWriter, r *http.Request) error {
	in := struct {
		Timeout int64 `json:"timeout"`
	}{leaseV2}
	s, err := d.find(r)
	if err != nil {
		return err
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	if in.Timeout < 0 {
		return brig.InvalidField("timeout", "it is negative")
	}
	if err := d.prolong(r.Context(), s, in.Timeout); err != nil {
		return err
	}
	d.write(w, r, http.StatusOK, d.connected(r.Context(), s))
	return nil
}
