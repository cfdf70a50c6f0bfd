package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	// inline is the maximum size of data that is stored in its row. Larger data is stored in a
	// file, so that deleting the file frees the space immediately, and so that a caller's large
	// data does not pass through the log, for which every write waits.
	inline = 4 << 10
	// blockSize is the unit to which the size of a file is rounded up.
	blockSize = 4 << 10
	// orphanAge is the minimum age at which a file without a row counts as left behind by a
	// server that crashed between the two writes.
	orphanAge = 10 * time.Minute
	// reapBatch is the maximum number of files that are removed in one step.
	reapBatch = 256
)

// outputs is the directory of output files next to the database. Each file contains the bytes
// of one row. It is written before the row and never changes.
type outputs struct{ dir string }

// blob holds the bytes of a row, inline or in a file.
type blob struct {
	data []byte // inline bytes
	file string
	size int // total size of the document and the bytes
}

// put stores the bytes of a row. If the row is not written afterwards, the
// caller must call drop.
func (o outputs) put(doc string, data []byte, durable bool) (blob, error) {
	if len(data) <= inline {
		return blob{data: data, size: len(doc) + len(data)}, nil
	}
	b := blob{data: []byte{}, file: rand.Text(), size: len(doc) + (len(data)+blockSize-1)/blockSize*blockSize}
	if err := o.write(b.file, data, durable); err != nil {
		o.drop(b)
		return blob{}, err
	}
	return b, nil
}

func (o outputs) write(name string, data []byte, durable bool) (err error) {
	f, err := os.OpenFile(filepath.Join(o.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(data); err != nil || !durable {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return syncFile(o.dir)
}

// drop removes the file of a row that was not written.
func (o outputs) drop(b blob) {
	if b.file != "" {
		_ = os.Remove(filepath.Join(o.dir, b.file)) // if this fails, sweep removes the file
	}
}

// errNoOutput means that the file of a row is missing or does not match the row.
var errNoOutput = errors.New("the file of an output is not there")

func (o outputs) read(name string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(o.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoOutput
	}
	return b, err
}

// unpack decodes a row whose bytes may be in a file. Lost bytes are nil.
func unpack[T any](o outputs, row scanner) (*T, error) {
	var p packedRow
	if err := row.Scan(&p.doc, &p.data, &p.file, &p.lost); err != nil {
		return nil, err
	}
	return unpackRow[T](o, p)
}

// packedRow is a row whose bytes may be in a file.
type packedRow struct {
	doc, file string
	data      []byte
	lost      bool
}

// unpackRow is like unpack, for a row that has already been read.
func unpackRow[T any](o outputs, p packedRow) (*T, error) {
	if p.file == "" {
		return decodeLost[T](p.doc, p.data, p.lost)
	}
	// Trim may have deleted the file concurrently. A power failure may also have lost the file,
	// because the write did not wait for the disk.
	data, err := o.read(p.file)
	if errors.Is(err, errNoOutput) {
		return decodeLost[T](p.doc, nil, true)
	}
	if err != nil {
		return nil, err
	}
	v, err := decode[T](p.doc, data)
	if err != nil {
		return decodeLost[T](p.doc, nil, true) // a power failure may also have truncated the file
	}
	return v, nil
}

// These are the statements for files without a row.
const (
	selectUnreferenced = `select file from unnamed limit $1`
	deleteUnreferenced = `delete from unnamed where file = $1`
)

// reap removes files that no row references any longer. It reports whether more such files may
// exist.
func (s *db) reap(ctx context.Context) (bool, error) {
	names, err := queryTexts(ctx, s.readers, selectUnreferenced, reapBatch)
	if err != nil || len(names) == 0 {
		return false, err
	}
	for _, name := range names {
		err := os.Remove(filepath.Join(s.outputs.dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	// Names are never reused, so removing a file twice does no harm.
	soon := *s
	soon.lazySync = true
	err = soon.write(ctx, nil, func(t *tx) error {
		for _, name := range names {
			if _, err := t.exec(deleteUnreferenced, name); err != nil {
				return err
			}
		}
		return nil
	})
	return len(names) == reapBatch, err
}

// sweep removes files that never had a row, because a server crashed between the two writes.
func (s *db) sweep(ctx context.Context) error {
	entries, err := os.ReadDir(s.outputs.dir)
	if err != nil {
		return err
	}
	var old []string
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > orphanAge {
			old = append(old, entry.Name())
		}
	}
	if len(old) == 0 {
		return nil
	}
	known := map[string]bool{}
	names, err := queryTexts(ctx, s.readers, `
		select file from executions where file <> '' union all select file from runs where file <> ''
		union all select file from unnamed`)
	if err != nil {
		return err
	}
	for _, name := range names {
		known[name] = true
	}
	for _, name := range old {
		if !known[name] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(s.outputs.dir, name)))
		}
	}
	return err
}

// queryTexts reads rows with one text column.
func queryTexts(ctx context.Context, db *sql.DB, q string, args ...any) ([]string, error) {
	list, err := query(ctx, db, func(row scanner) (*string, error) {
		v := new(string)
		return v, row.Scan(v)
	}, q, args...)
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = *v
	}
	return out, err
}

// moveBatch is the maximum number of rows that moveOutputs holds in memory.
const moveBatch = 4

// moveOutputs moves large data from the rows that an older version of Brig wrote to files. If
// the disk is full, the data stays in its rows and remains readable.
func (s *db) moveOutputs(ctx context.Context) error {
	for _, table := range []string{"executions", "runs"} {
		for after := int64(0); ; {
			next, err := s.moveRows(ctx, table, after)
			if err != nil || next == after {
				if err != nil {
					return err
				}
				break
			}
			after = next
		}
	}
	return nil
}

// moveRows moves the data of some rows of a table, starting after the given row
// ID. It returns the ID of the last row.
func (s *db) moveRows(ctx context.Context, table string, after int64) (int64, error) {
	type row struct {
		id   int64
		doc  string
		data []byte
	}
	rows, err := query(ctx, s.readers, func(r scanner) (*row, error) {
		v := new(row)
		return v, r.Scan(&v.id, &v.doc, &v.data)
	}, `select rowid, doc, data from `+table+` where rowid > $1 and length(data) > $2 order by rowid limit $3`, after, inline, moveBatch)
	if err != nil || len(rows) == 0 {
		return after, err
	}
	var blobs []blob
	defer func() {
		if err != nil {
			for _, b := range blobs {
				s.outputs.drop(b)
			}
		}
	}()
	for _, r := range rows {
		b, putErr := s.outputs.put(r.doc, r.data, true)
		if err = putErr; err != nil {
			return after, err
		}
		blobs = append(blobs, b)
	}
	err = s.write(ctx, nil, func(t *tx) error {
		for i, r := range rows {
			_, err := t.ExecContext(t.ctx, `update `+table+` set data = $2, file = $3, size = $4 where rowid = $1`,
				r.id, blobs[i].data, blobs[i].file, blobs[i].size)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return rows[len(rows)-1].id, err
}
