package image

import (
	"regexp"
	"runtime"
	"strings"

	"github.com/brig-run/brig"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// The parts of a reference. The library admits more, for example "a/../b",
// which would become part of an address.
var (
	repositoryForm = regexp.MustCompile(`^[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*$`)
	registryForm   = regexp.MustCompile(`^(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?$`)
)

// reference names an image in a registry, by a tag or by a digest.
type reference struct{ name.Reference }

// parseReference reads a reference as docker has them.
func parseReference(s string, opts ...name.Option) (reference, error) {
	bad := func(err error) error {
		return brig.InvalidField("ref", "%.80q does not name an image of a registry", s).
			WithHint("for example python:3.11-slim or registry.example/owner/name@sha256:...").Because(err)
	}
	if len(s) > 512 {
		return reference{}, bad(nil)
	}
	r, err := name.ParseReference(s, append(opts, name.WeakValidation)...)
	if err != nil {
		return reference{}, bad(err)
	}
	ref := reference{r}
	repo := r.Context()
	if !repositoryForm.MatchString(repo.RepositoryStr()) || !registryForm.MatchString(repo.RegistryStr()) ||
		strings.ContainsAny(r.Identifier()[:1], ".-") {
		return reference{}, bad(nil)
	}
	if d := ref.digest(); d != "" && checkDigest(d) != nil {
		return reference{}, bad(nil)
	}
	return ref, nil
}

// digest is that of the manifest, if the reference has it.
func (r reference) digest() string {
	if d, ok := r.Reference.(name.Digest); ok {
		return d.DigestStr()
	}
	return ""
}

// registry is the registry's name as people write it.
func (r reference) registry() string { return registryName(r.Context().RegistryStr()) }

func registryName(s string) string {
	if s == name.DefaultRegistry {
		return "docker.io"
	}
	return s
}

// repository is the full name of the repository as people write it.
func (r reference) repository() string { return r.registry() + "/" + r.Context().RepositoryStr() }

// familiar is the short form, by which a pulled image is known. It always has
// a ":" or an "@", and so is never a name that an import or a build may take.
func (r reference) familiar() string {
	repo := strings.TrimPrefix(r.repository(), "docker.io/")
	if r.registry() == "docker.io" {
		repo = strings.TrimPrefix(repo, "library/")
	}
	if d := r.digest(); d != "" {
		return repo + "@" + d
	}
	return repo + ":" + r.Identifier()
}

// find returns the digest of the image that ref means: by our digest, by a
// name, by another form of the name, or by a manifest's digest.
func (x *index) find(ref string) string {
	if isDigest(ref) {
		if d := x.Manifests[ref]; d != "" {
			return d
		}
		return ref
	}
	if d := x.Names[ref]; d != "" {
		return d
	}
	r, err := parseReference(ref)
	if err != nil {
		return ""
	}
	if d := x.Names[r.familiar()]; d != "" {
		return d
	}
	return x.Manifests[r.digest()]
}

// nameOf returns the name in the index that ref is a form of.
func (x *index) nameOf(ref string) string {
	if _, ok := x.Names[ref]; ok {
		return ref
	}
	if r, err := parseReference(ref); err == nil {
		if _, ok := x.Names[r.familiar()]; ok {
			return r.familiar()
		}
	}
	return ""
}

// thisPlatform is what images for this machine say that they are for.
func thisPlatform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// parsePlatform reads for example "linux/arm64/v8"; empty is this machine's.
func parsePlatform(s string) (v1.Platform, error) {
	if s == "" {
		return thisPlatform(), nil
	}
	p, err := v1.ParsePlatform(s)
	if err != nil || p.OS == "" || p.Architecture == "" || len(s) > 80 {
		return v1.Platform{}, brig.InvalidField("platform", "%.80q is not a platform", s).
			WithHint("for example linux/amd64 or linux/arm64/v8").Because(err)
	}
	return *p, nil
}
