package image

import (
	"context"
	"slices"

	"github.com/brig-run/brig"
)

// maxAliases limits the number of aliases in the index.
const maxAliases = 1000

// Tag implements brig.ImageTagger. The alias stores the name in ref, so it
// refers to the new image when that name is moved. An alias of an alias refers
// to the original name.
func (s *Store) Tag(ctx context.Context, ref, name string) (*brig.Image, error) {
	img, err := s.Resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	if name, err = aliasForm(name); err != nil {
		return nil, err
	}
	err = s.updateIndex(ctx, func(x *index) error {
		target := ref
		if _, further := x.aliasOf(ref); further != "" {
			target = further
		}
		if x.Names[name] != "" {
			return brig.Errorf(brig.AlreadyExists, "there is an image %s", name).WithHint("remove it first: brig image rm %s", name)
		}
		if name == target {
			return brig.InvalidField("name", "an image cannot be an alias of itself").WithHint("pick another name")
		}
		if x.Aliases == nil {
			x.Aliases = map[string]string{}
		}
		if x.Aliases[name] == "" && len(x.Aliases) >= maxAliases {
			return brig.Errorf(brig.FailedPrecondition, "there are %d aliases of images", maxAliases).WithHint("remove some: brig image rm NAME")
		}
		x.Aliases[name] = target
		return nil
	})
	if err != nil {
		return nil, err
	}
	named := *img
	named.Alias = name
	if !slices.Contains(named.Names, name) {
		named.Names = append(slices.Clone(named.Names), name)
	}
	return &named, nil
}

// aliasForm returns the stored form of name: either an image name or a full reference.
func aliasForm(name string) (string, error) {
	if name == brig.HostImage || isDigest(name) {
		return "", brig.InvalidField("name", "%.80q cannot be an alias", name).WithHint("give a name or a reference, for example python:3.11-slim")
	}
	if brig.ValidName(name) {
		return name, nil
	}
	r, err := parseReference(name)
	if err != nil || r.digest() != "" {
		return "", brig.InvalidField("name", "%.80q cannot be an alias", name).WithHint("give a name or a reference with a tag, for example python:3.11-slim")
	}
	return r.shortName(), nil
}
