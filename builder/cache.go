package builder

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"

	"github.com/brig-run/brig"
)

// A build begins with the files of an earlier build of its template if that had the same base and
// the same first steps, and no others. The longest such beginning is used. There are no layers: only the
// results of whole builds are kept.

// digests returns the digest of the base, and those after each step. It returns nil if the base has
// no digest of its own.
func (r *activeRun) digests(ctx context.Context) ([]string, error) {
	base, err := r.baseDigest(ctx)
	if err != nil || base == "" {
		return nil, err
	}
	all := []string{base}
	for _, s := range r.plan.Steps {
		// The fields have no separators of their own, so they are encoded.
		text, err := json.Marshal([]any{all[len(all)-1], s.Kind, s.Args, s.Files})
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		all = append(all, hex.EncodeToString(sum[:]))
	}
	return all, nil
}

// baseDigest identifies the files with which the build begins without a cache.
func (r *activeRun) baseDigest(ctx context.Context) (string, error) {
	t, configured := r.configured()
	switch {
	case configured:
		for _, image := range []string{t.Image, t.StandIn, t.Name} {
			if digest, err := r.imageDigest(ctx, image); digest != "" || err != nil {
				return "template " + t.Name + " " + digest, err
			}
		}
		return "", nil
	case r.plan.Template != "":
		_, from, err := r.b.Find(ctx, r.plan.Template)
		if err != nil || from == nil {
			return "", nil //nolint:nilerr // the build itself reports the error
		}
		return "build " + from.ID, nil
	case r.plan.Username != "" || r.plan.Password != "":
		return "", nil // the credentials must be checked again
	}
	digest, err := r.imageDigest(ctx, r.plan.Image)
	if digest == "" {
		return "", err
	}
	return "image " + digest, nil
}

// imageDigest returns the digest of an image, or an empty string if it is not on the server.
func (r *activeRun) imageDigest(ctx context.Context, image string) (string, error) {
	if image == "" {
		return "", nil
	}
	img, err := r.b.options.Service.GetImage(ctx, image)
	switch {
	case brig.KindOf(err) == brig.NotFound, brig.KindOf(err) == brig.InvalidArgument:
		return "", nil
	case err != nil:
		return "", err
	}
	return img.Digest, nil
}

// restoreCached creates the sandbox of the build from an earlier build, and returns the number of
// steps that it has run. It returns no sandbox if there is no such build.
func (r *activeRun) restoreCached(ctx context.Context, digests []string) (made *brig.Sandbox, done int, err error) {
	usable := len(digests) - 1
	for n, s := range r.plan.Steps {
		if s.Force {
			usable = min(usable, n)
		}
	}
	if r.plan.Force || usable < 1 { // an image needs no cache
		return nil, 0, nil
	}
	earlier, err := r.b.options.Store.Builds(ctx, brig.BuildFilter{Tenant: r.build.Tenant, Template: r.build.Template})
	if err != nil {
		return nil, 0, err
	}
	for ; usable > 0; usable-- {
		for _, x := range earlier {
			if x.Status != brig.BuildReady || x.Files == "" || x.Digest != digests[usable] {
				continue
			}
			made, err := r.copyFilesOf(ctx, x)
			if brig.KindOf(err) == brig.NotFound {
				continue // the tenant has removed it
			}
			if err != nil {
				return nil, 0, err
			}
			r.state = stateAfter(x)
			return made, usable, nil
		}
	}
	return nil, 0, nil
}

// stateAfter returns the state at the end of a build.
func stateAfter(x *brig.TemplateBuild) state {
	s := state{env: maps.Clone(x.Env), user: accountOf(x.User), dir: x.Dir}
	if s.env == nil {
		s.env = map[string]string{}
	}
	return s
}

// copyFilesOf creates the sandbox of the build with the files of another build.
func (r *activeRun) copyFilesOf(ctx context.Context, x *brig.TemplateBuild) (*brig.Sandbox, error) {
	copies, err := r.b.options.Service.Fork(ctx, string(x.Files), brig.ForkSpec{
		Labels: r.labels(), TTL: r.timeout(), Egress: &r.b.options.Egress, Limits: r.build.Limits, User: "root", Dir: "/", BuildRights: true, AtEnd: &brig.AtEnd{},
	})
	if err != nil {
		return nil, err
	}
	return copies[0], nil
}
