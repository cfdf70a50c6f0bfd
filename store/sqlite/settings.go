package sqlite

import (
	"context"
	"time"

	"github.com/brig-run/brig"
)

// These are the statements for settings.
const (
	putSetting = `
		insert into settings (name, data_type, value, updated_ns) values ($1, $2, $3, $4)
		on conflict (name) do update set
			data_type = excluded.data_type, value = excluded.value, updated_ns = excluded.updated_ns`
	deleteSetting = `delete from settings where name = $1`
)

// PutSettings implements brig.Store.
func (s *tenants) PutSettings(ctx context.Context, list []brig.Setting, events ...brig.Event) error {
	err := s.write(ctx, events, func(t *tx) error {
		for _, x := range list {
			var err error
			if x.Value == nil {
				_, err = t.exec(deleteSetting, x.Name)
			} else {
				_, err = t.exec(putSetting, x.Name, x.Type, string(x.Value), x.Updated.UnixNano())
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return wrap(err, "put settings")
}

// Settings implements brig.Store.
func (s *tenants) Settings(ctx context.Context) ([]brig.Setting, error) {
	rows, err := s.readers.QueryContext(ctx, `select name, data_type, value, updated_ns from settings order by name`)
	if err != nil {
		return nil, wrap(err, "list settings")
	}
	defer rows.Close()
	var out []brig.Setting
	for rows.Next() {
		var x brig.Setting
		var value string
		var updated int64
		if err := rows.Scan(&x.Name, &x.Type, &value, &updated); err != nil {
			return nil, wrap(err, "list settings")
		}
		x.Value, x.Updated = []byte(value), time.Unix(0, updated).UTC()
		out = append(out, x)
	}
	return out, wrap(rows.Err(), "list settings")
}
