package rest

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/brig-run/brig/door/wire"
)

// The documents below stand in the schemas for wire values that are written
// in forms of their own. They have no fields; only their schemas count.
type (
	sizeDoc   struct{}
	modeDoc   struct{}
	objectDoc struct{}
	filesDoc  struct{}
)

// Schema implements huma.SchemaProvider.
func (sizeDoc) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeInteger, Format: "int64"},
		{Type: huma.TypeString, Examples: []any{"512MiB"}},
	}}
}

// Schema implements huma.SchemaProvider.
func (modeDoc) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeInteger, Format: "int32"},
		{Type: huma.TypeString, Pattern: "^0?[0-7]{1,3}$", Examples: []any{"0755"}},
	}}
}

// Schema implements huma.SchemaProvider.
func (objectDoc) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}

// Schema implements huma.SchemaProvider.
func (filesDoc) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeArray, Items: r.Schema(reflect.TypeFor[wire.File](), true, "")},
		{Type: huma.TypeObject, AdditionalProperties: &huma.Schema{Type: huma.TypeString}},
	}}
}
