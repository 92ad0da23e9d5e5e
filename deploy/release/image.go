package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// An image is a program, and the command line for its health check. There is nothing else in it that runs, but for what beside names:
// programs that a container of their own runs.
type image struct {
	name, description string
	beside            []string
	env               []string
	ports             []string
}

var images = []image{
	{
		name:        "sluice-sidecar",
		description: "The sidecar of Sluice: a durable event log beside an application, over HTTP and WebSocket.",
		ports:       []string{"7070", "8083", "7071"},
	}, {
		name:        "sluice-controlplane",
		description: "The control plane of Sluice: policies and fleet-wide limits for every sidecar.",
		beside:      []string{injector},
		env:         []string{"SLUICE_OPS_URL=http://127.0.0.1:7080"},
		ports:       []string{"18000", "7080"},
	},
}

// A number, since Kubernetes cannot verify that a name is not root.
const imageUser = 65532

// makeImages makes a file for each image, an OCI layout with all architectures.
func (r *release) makeImages(context.Context) error {
	if err := os.WriteFile(r.document("ca-certificates.crt"), rootCertificates(), 0o644); err != nil {
		return err
	}
	for _, img := range images {
		if err := r.makeImage(img); err != nil {
			return fmt.Errorf("image %s: %w", img.name, err)
		}
	}
	return nil
}

// rootCertificates are Mozilla's, as Go keeps them, without those that are trusted under conditions, which a file cannot express.
func rootCertificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return out.Bytes()
}

func (r *release) makeImage(img image) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	// What docker save writes, too: a Docker that keeps images its own way, and not containerd's, reads this.
	type saved struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var manifest []saved
	platforms := r.imagePlatforms()
	for _, p := range platforms {
		built, err := r.imageFor(img, p)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: built, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
		of, err := built.Manifest()
		if err != nil {
			return err
		}
		tag := img.name + ":" + r.number()
		if len(platforms) > 1 {
			tag += "-" + p.arch
		}
		entry := saved{Config: blob(of.Config), RepoTags: []string{tag}}
		for _, layer := range of.Layers {
			entry.Layers = append(entry.Layers, blob(layer))
		}
		manifest = append(manifest, entry)
	}
	dir := filepath.Join(r.work, img.name)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.number(),
		"io.containerd.image.name":          "docker.io/library/" + img.name + ":" + r.number(),
	})); err != nil {
		return err
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o644); err != nil {
		return err
	}
	files, err := filesBelow(dir)
	if err != nil {
		return err
	}
	return create(filepath.Join(r.dist, fmt.Sprintf("%s_%s_oci.tar", img.name, r.number())), files, r.date, writeTar)
}

func (r *release) imagePlatforms() (found []platform) {
	for _, p := range r.platforms {
		if p.os == "linux" {
			found = append(found, p)
		}
	}
	return found
}

func blob(of v1.Descriptor) string { return "blobs/" + of.Digest.Algorithm + "/" + of.Digest.Hex }

// filesBelow are the files of a folder and of those in it, in the order of their names.
func filesBelow(dir string) (files []file, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files = append(files, file{name: filepath.ToSlash(name), source: path, mode: 0o644})
		return err
	})
	return files, err
}

func (r *release) imageFor(img image, p platform) (v1.Image, error) {
	built := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, content := range []struct {
		files []file
		by    string
	}{
		{by: "certificates, licenses, the data folder and the command line", files: append([]file{
			{name: "etc/ssl/certs/ca-certificates.crt", source: r.document("ca-certificates.crt"), mode: 0o644},
			{name: "usr/share/licenses/sluice/LICENSE", source: filepath.Join(r.root, "LICENSE"), mode: 0o644},
			{name: "usr/share/licenses/sluice/THIRD_PARTY_LICENSES.txt", source: r.document("THIRD_PARTY_LICENSES.txt"), mode: 0o644},
			// A new volume gets its owner from the image.
			{name: "var/lib/sluice/", mode: 0o755, owner: imageUser},
		}, r.programFiles(p, "usr/bin", []string{"sluice"})...)},
		{by: img.name, files: r.programFiles(p, "usr/bin", append([]string{img.name}, img.beside...))},
	} {
		layer, err := r.layer(content.files)
		if err != nil {
			return nil, err
		}
		built, err = mutate.Append(built, mutate.Addendum{
			Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: content.by},
		})
		if err != nil {
			return nil, err
		}
	}
	of, err := built.ConfigFile()
	if err != nil {
		return nil, err
	}
	of = of.DeepCopy()
	of.OS, of.Architecture, of.Created = p.os, p.arch, v1.Time{Time: r.date}
	of.Config = r.imageConfig(img)
	return mutate.ConfigFile(built, of)
}

func (r *release) layer(files []file) (v1.Layer, error) {
	open := func() (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		go func() { writer.CloseWithError(writeTar(writer, files, r.date)) }()
		return reader, nil
	}
	return tarball.LayerFromOpener(open, tarball.WithCompressionLevel(r.compression), tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressedCaching)
}

func (r *release) imageConfig(img image) v1.Config {
	ports := map[string]struct{}{}
	for _, port := range img.ports {
		ports[port+"/tcp"] = struct{}{}
	}
	return v1.Config{
		User:         fmt.Sprintf("%d:%d", imageUser, imageUser),
		Env:          append([]string{"PATH=/usr/bin", "SLUICE_DATA_DIR=/var/lib/sluice"}, img.env...),
		Entrypoint:   []string{"/usr/bin/" + img.name},
		ExposedPorts: ports,
		Volumes:      map[string]struct{}{"/var/lib/sluice": {}},
		StopSignal:   "SIGTERM",
		Healthcheck: &v1.HealthConfig{
			Test:     []string{"CMD", "/usr/bin/sluice", "status", "--ready", "--timeout", "3s"},
			Interval: 10 * time.Second, Timeout: 5 * time.Second, StartPeriod: 30 * time.Second, Retries: 3,
		},
		Labels: map[string]string{
			"org.opencontainers.image.source": homepage, "org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.version": r.number(), "org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.title": img.name, "org.opencontainers.image.description": img.description,
		},
	}
}
