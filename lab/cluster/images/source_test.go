// SPDX-License-Identifier: Apache-2.0

package images

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/lab/cluster/kubelet"
)

func TestMake(t *testing.T) {
	folder := t.TempDir()
	program := filepath.Join(folder, "server")
	nstest.Must(t, os.WriteFile(program, nil, 0o755))
	sources := map[string]Source{
		"tool":   {Command: []string{"sh", "-c"}, Args: []string{"true"}, Env: []string{"B=2", "A=1"}},
		"mine":   Source{Command: []string{"./server"}}.At(folder),
		"rooted": Source{Root: "."}.At(folder),
		"web":    {Server: "echo"},
	}
	got, err := Make(sources, t.TempDir())
	nstest.Must(t, err)
	if tool := got["tool"]; !slices.Equal(tool.Env, []string{"B=2", "A=1"}) || tool.Args[0] != "true" || tool.Mounts != nil {
		t.Errorf("%+v", tool)
	}
	if mine := got["mine"]; mine.Command[0] != program || mine.Mounts[0].Source != program || !mine.Mounts[0].ReadOnly {
		t.Errorf("%+v", mine)
	}
	if got["rooted"].Root != folder || got["web"].Server != kubelet.EchoServer {
		t.Errorf("%+v", got)
	}
}

func TestMistakes(t *testing.T) {
	for want, s := range map[string]Source{
		"stands for nothing": {},
		"want one of them":   {Root: "/", OCI: "/"},
		"want echo or pause": {Server: "nginx"},
		"a server and a pro": {Server: "echo", Command: []string{"sh"}},
		"want a folder":      {Root: "/etc/passwd"},
		"no such file":       {Command: []string{"/none"}},
		"index.json":         {OCI: t.TempDir()},
	} {
		if _, err := Make(map[string]Source{"x": s}, t.TempDir()); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), `image "x": `) {
			t.Errorf("%+v: %v, want %s", s, err, want)
		}
	}
}
