// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// noAgnhost is why there is no agnhost to test with. TestMain sets it.
var noAgnhost error

const agnhostPods = `
apiVersion: v1
kind: Pod
metadata: {name: netexec, labels: {app: netexec}}
spec:
  containers:
  - name: c
    image: registry.k8s.io/e2e-test-images/agnhost:2.53
    args: [netexec, --http-port=8080]
    readinessProbe: {httpGet: {path: /healthz, port: 8080}}
---
apiVersion: v1
kind: Service
metadata: {name: netexec}
spec: {selector: {app: netexec}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: who, labels: {app: who}}
spec: {containers: [{name: c, image: agnhost, args: [serve-hostname]}]}
---
apiVersion: v1
kind: Service
metadata: {name: who}
spec: {selector: {app: who}, ports: [{port: 80, targetPort: 9376}]}
---
apiVersion: v1
kind: Pod
metadata: {name: idle}
spec:
  containers:
  - {name: agnhost, image: 'registry.k8s.io/e2e-test-images/agnhost:2.53'}
  - {name: pause, image: 'registry.k8s.io/pause:3.10'}
`

func TestAgnhostAndPause(t *testing.T) {
	if noAgnhost != nil {
		t.Fatal(noAgnhost)
	}
	withLab(t, "--nodes", "2", "-f", write(t, "pods.yaml", agnhostPods))
	p := &newcomer{t, "looked-into"}
	p.says("wait --for=condition=Ready pod --all --timeout=5m", "pod/idle condition met", "pod/netexec condition met")
	for line, want := range map[string]string{
		"exec idle -- /agnhost connect netexec:80 --timeout=60s":           "",
		"exec idle -- curl --silent --max-time 60 http://netexec/hostname": "netexec",
		"exec idle -- curl --silent --max-time 60 http://who/":             "who",
		"exec idle --container pause -- hostname":                          "idle",
	} {
		p.says(line, want)
	}
}

// fakeGo puts a go command into PATH that runs a shell script to build, and an empty folder in the place of what has been
// built before.
func fakeGo(t *testing.T, build string) {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\ncase \"$1 $2\" in 'mod download') echo '{}';; 'mod edit') echo '{\"Go\": \"1.26\"}';;\n*) " +
		build + ";; esac\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("VIPLAB_CACHE", t.TempDir())
}

func TestAgnhostIsBuiltForAPod(t *testing.T) {
	fakeGo(t, `printf '#!/bin/sh\necho built for "$@"; exec sleep infinity' >agnhost; chmod +x agnhost`)
	withLab(t, "--nodes", "1", "-f", write(t, "pods.yaml", agnhostPods))
	p := &newcomer{t, "looked-into"}
	p.says("wait --for=condition=Ready pod who idle --timeout=5m", "pod/who condition met")
	p.says("logs who", "built for serve-hostname")
	p.says("get events", "building agnhost v1.36.3, the first time only") // of the pod that asked first
}

func TestAgnhostThatCannotBeBuilt(t *testing.T) {
	fakeGo(t, "echo no space left >&2; exit 1")
	withLab(t, "--nodes", "1", "-f", write(t, "pods.yaml", agnhostPods))
	p := &newcomer{t, "looked-into"}
	const waiting = "{.status.containerStatuses[0].state.waiting"
	p.says("wait --for=jsonpath=" + waiting + ".reason}=ErrImagePull pod/who --timeout=5m")
	p.says("get pod who --output jsonpath="+waiting+".message}", "build agnhost v1.36.3: go build", "no space left")
	p.says("delete pod who --timeout=5m")
}
