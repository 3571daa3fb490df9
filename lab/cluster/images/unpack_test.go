// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/viplab/viplab/internal/lab/nstest"
)

// image returns an image of two layers, the second of which removes a file of the first.
func image(t *testing.T) v1.Image {
	t.Helper()
	out, err := mutate.AppendLayers(empty.Image,
		layer(t, tar.Header{Name: "bin/hello", Mode: 0o755, Typeflag: tar.TypeReg, Size: 2},
			tar.Header{Name: "gone", Mode: 0o644, Typeflag: tar.TypeReg, Size: 2},
			tar.Header{Name: "etc/passwd", Mode: 0o644, Typeflag: tar.TypeReg, Size: 2},
			tar.Header{Name: "sh", Linkname: "/bin/hello", Typeflag: tar.TypeSymlink},
			tar.Header{Name: "hard", Linkname: "bin/hello", Typeflag: tar.TypeLink}),
		layer(t, tar.Header{Name: ".wh.gone", Mode: 0o644, Typeflag: tar.TypeReg}))
	nstest.Must(t, err)
	out, err = mutate.Config(out, v1.Config{Entrypoint: []string{"/bin/hello"}, Cmd: []string{"you"}, Env: []string{"A=b"},
		WorkingDir: "/work", User: "7:8"})
	nstest.Must(t, err)
	return out
}

func layer(t *testing.T, headers ...tar.Header) v1.Layer {
	t.Helper()
	out, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(archive(t, headers...)), nil })
	nstest.Must(t, err)
	return out
}

func archive(t *testing.T, headers ...tar.Header) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		nstest.Must(t, w.WriteHeader(&h))
		if h.Size > 0 {
			_, err := w.Write(bytes.Repeat([]byte("x"), int(h.Size)))
			nstest.Must(t, err)
		}
	}
	nstest.Must(t, w.Close())
	return &b
}

func TestUnpack(t *testing.T) {
	folder := t.TempDir()
	built, dir, file := image(t), filepath.Join(folder, "layout"), filepath.Join(folder, "image.tar")
	path, err := layout.Write(dir, empty.Index)
	nstest.Must(t, err)
	nstest.Must(t, path.AppendImage(built))
	tag, err := name.NewTag("example.org/hello:1")
	nstest.Must(t, err)
	nstest.Must(t, tarball.WriteToFile(file, tag, built))
	for _, from := range []string{dir, file} {
		root := filepath.Join(t.TempDir(), "root")
		got, err := Unpack(from, root)
		nstest.Must(t, err)
		if got.Root != root || !slices.Equal(got.Command, []string{"/bin/hello"}) || !slices.Equal(got.Args, []string{"you"}) ||
			got.Dir != "/work" || got.User != 7 || got.Group != 8 || !slices.Equal(got.Env, []string{"A=b"}) {
			t.Errorf("%s: %+v", from, got)
		}
		info, err := os.Stat(filepath.Join(root, "hard"))
		if err != nil || info.Mode() != 0o755 {
			t.Errorf("%s: the hard link: %v, %v", from, info, err)
		}
		if _, err := os.Stat(filepath.Join(root, "gone")); err == nil {
			t.Errorf("%s: a removed file is there", from)
		}
	}
}

func TestNoImage(t *testing.T) {
	folder := t.TempDir()
	nstest.Must(t, os.WriteFile(filepath.Join(folder, "text"), []byte("no tarball"), 0o644))
	for path, want := range map[string]string{
		folder: "index.json", filepath.Join(folder, "text"): "docker save", filepath.Join(folder, "none"): "no such file",
	} {
		if _, err := Unpack(path, filepath.Join(t.TempDir(), "root")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

// An archive cannot write outside of its folder.
func TestUnpackStaysInTheFolder(t *testing.T) {
	for _, headers := range [][]tar.Header{
		{{Name: "../out", Mode: 0o644, Typeflag: tar.TypeReg, Size: 1}},
		{{Name: "/../../out", Mode: 0o644, Typeflag: tar.TypeReg, Size: 1}},
		{{Name: "link", Linkname: "..", Typeflag: tar.TypeSymlink}, {Name: "link/out", Typeflag: tar.TypeReg, Size: 1}},
		{{Name: "link", Linkname: "../../secret", Typeflag: tar.TypeSymlink}, {Name: "link", Mode: 0o777, Typeflag: tar.TypeReg, Size: 1}},
		{{Name: "hard", Linkname: "../secret", Typeflag: tar.TypeLink}},
	} {
		above := t.TempDir()
		secret := filepath.Join(above, "secret")
		nstest.Must(t, os.WriteFile(secret, []byte("secret"), 0o600))
		_ = unpack(archive(t, headers...), filepath.Join(above, "root"))
		if _, err := os.Stat(filepath.Join(above, "out")); err == nil {
			t.Errorf("%v: it wrote beside the folder", headers)
		}
		if text, err := os.ReadFile(secret); string(text) != "secret" {
			t.Errorf("%v: %q, %v", headers, text, err)
		}
		if info, err := os.Stat(secret); err != nil || info.Mode() != 0o600 {
			t.Errorf("%v: %v, %v", headers, info, err)
		}
	}
}
