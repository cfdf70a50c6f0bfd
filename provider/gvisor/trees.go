package gvisor

import (
	"context"
	"io"
	"time"

	"github.com/brig-run/brig"
)

// Unpack implements brig.Instance.
func (i *instance) Unpack(ctx context.Context, dir string, o brig.UnpackOptions, source func(put func(brig.Node, io.Reader) error) error) error {
	return i.guest.Unpack(ctx, dir, o, source)
}

// Pack implements brig.Instance.
func (i *instance) Pack(ctx context.Context, dir string, on func(brig.Node, io.Reader) error) error {
	return i.guest.Pack(ctx, dir, on)
}

// Quiet implements brig.Instance.
func (i *instance) Quiet(ctx context.Context, grace time.Duration) error {
	return i.guest.Quiet(ctx, grace)
}
