package builder

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/brig-run/brig"
)

// A build begins with the files of an earlier build of its template if that had the same base and
// the same first steps, and no others. The longest such beginning is used. There are no layers: only the
// results of whole builds are kept.

// digests returns the digest of the base, and those after each step. It returns nil if the base is not
// known.
func (r *activeRun) digests(base string) []string {
	if base == "" {
		return nil
	}
	all := []string{base}
	for _, s := range r.plan.Steps {
		all = append(all, digestOf(all[len(all)-1], s.Kind, s.Args, s.Files))
	}
	return all
}

// digestOf returns a digest of texts and lists of texts. They are quoted, so that different values never have
// the same text.
func digestOf(values ...any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", values))
	return hex.EncodeToString(sum[:])
}

// baseDigest identifies the files with which the build begins without a cache. It is empty if they are not
// known.
func (r *activeRun) baseDigest(ctx context.Context) (string, error) {
	if r.from != nil {
		return "build " + r.from.ID, nil
	}
	images := []string{r.plan.Image}
	if t, ok := r.configured(); ok {
		images = []string{t.Fill().Image, t.StandIn}
	}
	for _, image := range images {
		if digest, err := r.imageDigest(ctx, image); digest != "" || err != nil {
			return r.describeBase(digest), err
		}
	}
	return "", nil
}

// describeBase identifies an image, with the template of the configuration that uses it. It is empty if the
// credentials for the image must be checked again.
func (r *activeRun) describeBase(image string) string {
	t, ok := r.configured()
	switch {
	case ok:
		all, err := json.Marshal(t) // also its start command, which runs at the boot
		if err != nil {
			return ""
		}
		return "template " + digestOf(string(all), image)
	case image == "" || r.plan.Username != "" || r.plan.Password != "":
		return ""
	}
	return "image " + image
}

// imageDigest returns the digest of an image, or an empty string if it is not on the server.
func (r *activeRun) imageDigest(ctx context.Context, image string) (string, error) {
	if image == "" {
		return "", nil
	}
	img, err := r.b.options.Service.GetImage(r.b.internal(ctx, r.build.Tenant), image)
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
			switch brig.KindOf(err) {
			case "":
			case brig.NotFound, brig.FailedPrecondition, brig.InvalidArgument, brig.Unavailable:
				continue // the tenant has removed, stopped or resumed it
			default:
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
		Labels: r.labels(), TTL: r.timeout(), Egress: &r.b.options.Egress, Limits: r.build.Limits, User: "root", Dir: "/", BuildRights: true, AtEnd: &brig.AtEnd{Pause: true, FilesOnly: true},
	})
	if err != nil {
		return nil, err
	}
	return copies[0], nil
}
