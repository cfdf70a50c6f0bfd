package rest

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/brig-run/brig/api/v1"
)

// The types below represent wire values with their own text formats. They have
// no fields and exist only for their schemas. A format that is allowed only in
// requests is writeOnly.
type (
	sizeDoc   struct{}
	modeDoc   struct{}
	objectDoc struct{}
	filesDoc  struct{}
)

// sizePattern matches sizes that are written as text.
const sizePattern = "^(?:[1-9][0-9]{0,17}|(?:[1-9][0-9]{0,5}(?:[.][0-9]{1,3})?|0[.][0-9]{0,2}[1-9]) ?(?:[KMGTkmgt](?:i?[Bb])?|[Bb]))$"

// Schema implements huma.SchemaProvider.
func (sizeDoc) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeInteger, Format: "int64"},
		{Type: huma.TypeString, Pattern: sizePattern, Examples: []any{"512MiB"}, WriteOnly: true},
	}}
}

// Schema implements huma.SchemaProvider.
func (modeDoc) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeInteger, Format: "int32"},
		{Type: huma.TypeString, Pattern: "^0?[0-7]{1,3}$", Examples: []any{"0755"}, WriteOnly: true},
	}}
}

// Schema implements huma.SchemaProvider.
func (objectDoc) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}

// Schema implements huma.SchemaProvider.
func (filesDoc) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeArray, Items: r.Schema(reflect.TypeFor[v1.File](), true, "")},
		{Type: huma.TypeObject, AdditionalProperties: &huma.Schema{Type: huma.TypeString}},
	}}
}
