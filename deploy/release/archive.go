package main

import (
	"archive/tar"
	"archive/zip"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// A file is one of an archive, a package or an image.
type file struct {
	name   string // with slashes; a folder's ends with one
	source string // where its content is; "" for a folder
	mode   fs.FileMode
	owner  int // the number of the user and the group
}

// makeArchives makes an archive for each platform, with one folder in it.
func (r *release) makeArchives(context.Context) error {
	for _, p := range r.platforms {
		folder := fmt.Sprintf("sluice_%s_%s_%s", r.number(), p.os, p.arch)
		files := r.programFiles(p, folder, programs)
		files = append(files,
			file{name: path.Join(folder, "LICENSE"), source: filepath.Join(r.root, "LICENSE"), mode: 0o644},
			file{name: path.Join(folder, "THIRD_PARTY_LICENSES.txt"), source: r.document("THIRD_PARTY_LICENSES.txt"), mode: 0o644},
			file{name: path.Join(folder, "README.md"), source: filepath.Join(r.root, "README.md"), mode: 0o644},
		)
		extension, write := ".tar.gz", r.writeTarGzip
		if p.os == "windows" {
			extension, write = ".zip", r.writeZip
		} else {
			for _, page := range manuals {
				files = append(files, file{name: path.Join(folder, "man", page), source: r.document(page), mode: 0o644})
			}
			for _, script := range completions {
				files = append(files, file{name: path.Join(folder, "completion", script), source: r.document(script), mode: 0o644})
			}
		}
		if err := create(filepath.Join(r.dist, folder+extension), files, r.date, write); err != nil {
			return err
		}
	}
	return nil
}

// programFiles are programs for a platform, in a folder.
func (r *release) programFiles(p platform, folder string, names []string) (files []file) {
	for _, program := range names {
		if p.os == "windows" {
			program += ".exe"
		}
		files = append(files, file{name: path.Join(folder, program), source: filepath.Join(r.bin(p), program), mode: 0o755})
	}
	return files
}

// create writes an archive of files into a new file.
func create(name string, files []file, date time.Time, write func(io.Writer, []file, time.Time) error) error {
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(out, files, date), out.Close())
}

func (r *release) writeTarGzip(w io.Writer, files []file, date time.Time) error {
	compressed, err := gzip.NewWriterLevel(w, r.compression)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(compressed, files, date), compressed.Close())
}

func writeTar(w io.Writer, files []file, date time.Time) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		header := &tar.Header{
			Name: f.name, Mode: int64(f.mode), Uid: f.owner, Gid: f.owner, ModTime: date, Typeflag: tar.TypeReg, Format: tar.FormatPAX,
		}
		if f.source == "" {
			header.Typeflag = tar.TypeDir
			if err := archive.WriteHeader(header); err != nil {
				return err
			}
			continue
		}
		info, err := os.Stat(f.source)
		if err != nil {
			return err
		}
		header.Size = info.Size()
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if err := f.copyTo(archive); err != nil {
			return err
		}
	}
	return archive.Close()
}

func (r *release) writeZip(w io.Writer, files []file, date time.Time) error {
	archive := zip.NewWriter(w)
	archive.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, r.compression) })
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: date}
		header.SetMode(f.mode)
		entry, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if err := f.copyTo(entry); err != nil {
			return err
		}
	}
	return archive.Close()
}

func (f file) copyTo(w io.Writer) error {
	in, err := os.Open(f.source)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(w, in)
	return err
}
