// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

// manifest returns one of the manifests of the store's tests.
func manifest(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "store", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// shop returns a world in which a Deployment and a Service of it have been applied and run.
func shop(t *testing.T) *world {
	w := newWorld(t)
	w.says("apply -f "+manifest(t, "frontend-deployment.yaml")+" -f "+manifest(t, "nodeport.yaml"),
		"deployment.apps/webapp created", "service/frontend created")
	w.says("wait --for=condition=Available deployment/webapp --timeout=300s", "deployment.apps/webapp condition met")
	return w
}

func TestApplyAndGet(t *testing.T) {
	w := shop(t)
	w.says("apply -f "+manifest(t, "frontend-deployment.yaml")+" -f "+manifest(t, "nodeport.yaml"),
		"deployment.apps/webapp unchanged", "service/frontend unchanged")
	w.says("get svc,endpointslices -o wide",
		"NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE SELECTOR",
		"service/frontend NodePort 10.96.* <none> 80:31380/TCP * app=webapp",
		"",
		"NAME ADDRESSTYPE PORTS ENDPOINTS AGE",
		"endpointslice.discovery.k8s.io/frontend-* IPv4 80 10.244.* *")
	w.says("get deployments", "NAME READY UP-TO-DATE AVAILABLE AGE", "webapp 2/2 2 2 *")
	w.says("get pods -l app=webapp -o wide --sort-by=.spec.nodeName",
		"NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES",
		"webapp-* 1/1 Running 0 * 10.244.1.* n1 <none> <none>",
		"webapp-* 1/1 Running 0 * 10.244.2.* n2 <none> <none>")
	w.says("get pods -l app=other", "No resources found in default namespace.")
	w.says("get nodes -o name", "node/n1", "node/n2")
	w.says("get svc frontend -o jsonpath={.spec.ports[0].nodePort}", "31380")
	w.contains("get all -A", "default service/frontend ...", "default pod/webapp-* ...",
		"default deployment.apps/webapp ...")
	w.contains("get svc frontend -o yaml", "kind: Service", "- nodePort: 31380", "type: NodePort")
}

func TestDescribe(t *testing.T) {
	w := shop(t)
	w.contains("describe service frontend", "Name: frontend", "Selector: app=webapp", "Type: NodePort",
		"NodePort: <unset> 31380/TCP", "Endpoints: 10.244.*", "Events: <none>")
	w.contains("describe deployment webapp", "Replicas: 2 desired | 2 updated | 2 total | 2 available | 0 unavailable",
		"Available True MinimumReplicasAvailable", "Progressing True NewReplicaSetAvailable")
	w.contains("describe pods -l app=webapp", "Node: n1/192.168.7.11", "Status: Running", "Ready True")
	w.contains("describe node n2", "Name: n2", "PodCIDR: 10.244.2.0/24", "default webapp-* ...")
	w.contains("describe endpointslices", "AddressType: IPv4", "<unset> 80 TCP")
	w.contains("describe namespace default", "Name: default", "Status: Active")
}

const started = `
apiVersion: v1
kind: Event
metadata: {name: started}
involvedObject: {apiVersion: v1, kind: Service, namespace: default, name: frontend, uid: %s}
type: Normal
reason: Started
message: it is there
source: {component: test}
lastTimestamp: "2026-01-01T12:00:00Z"
`

func TestEvents(t *testing.T) {
	w := shop(t)
	file := filepath.Join(t.TempDir(), "event.yaml")
	uid := w.run("get", "service", "frontend", "-o", "jsonpath={.metadata.uid}")
	if err := os.WriteFile(file, fmt.Appendf(nil, started, uid), 0o600); err != nil {
		t.Fatal(err)
	}
	w.says("create -f "+file, "event/started created")
	w.contains("describe service frontend", "Events:", "Normal Started * ...")
	w.says("get events", "LAST SEEN TYPE REASON OBJECT MESSAGE", "* Normal Started service/frontend it is there")
	w.says("events --for service/frontend", "LAST SEEN TYPE REASON OBJECT MESSAGE",
		"* Normal Started Service/frontend it is there")
	w.says("get events --field-selector=involvedObject.name=other", "No resources found in default namespace.")
	w.says("get events.events.k8s.io --field-selector=regarding.name=frontend",
		"LAST SEEN TYPE REASON OBJECT MESSAGE", "* Normal Started service/frontend it is there")
}

func TestChange(t *testing.T) {
	w := shop(t)
	w.says("label service frontend tier=web", "service/frontend labeled")
	w.says("get svc -l tier=web -o name", "service/frontend")
	w.says("label service frontend tier-", "service/frontend unlabeled")
	w.says("annotate service frontend note=it-is", "service/frontend annotated")
	w.run("patch", "service", "frontend", "-p", `{"spec":{"externalTrafficPolicy":"Local"}}`)
	w.run("patch", "service", "frontend", "--type=merge", "-p", `{"spec":{"sessionAffinity":"ClientIP"}}`)
	w.run("patch", "service", "frontend", "--type=json", "-p",
		`[{"op":"replace","path":"/spec/ports/0/nodePort","value":31381}]`)
	svc, ok := store.Get[*corev1.Service](w.cluster.Store(), "default", "frontend")
	if !ok || svc.Annotations["note"] != "it-is" || svc.Spec.ExternalTrafficPolicy != "Local" ||
		svc.Spec.SessionAffinity != "ClientIP" ||
		svc.Spec.Ports[0].NodePort != 31381 {
		t.Errorf("the Service became %+v", svc)
	}
	w.says("apply -f "+manifest(t, "nodeport-local.yaml"), "service/frontend configured")
	w.says("get svc frontend", "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE",
		"frontend NodePort 10.96.* <none> 80:31380/TCP *")
	w.says("scale deployment webapp --replicas=3", "deployment.apps/webapp scaled")
	w.contains("rollout status deployment/webapp --timeout=300s", `deployment "webapp" successfully rolled out`)
	w.says("wait --for=jsonpath={.status.readyReplicas}=3 deployment/webapp --timeout=300s",
		"deployment.apps/webapp condition met")
	w.says("set image deployment/webapp nginx=nginx:1.15", "deployment.apps/webapp image updated")
	w.contains("rollout status deployment/webapp --timeout=300s", `deployment "webapp" successfully rolled out`)
	w.says("get pods -o jsonpath={.items[*].spec.containers[0].image}", "nginx:1.15 nginx:1.15 nginx:1.15")
	w.says("apply --server-side --force-conflicts -f "+manifest(t, "nodeport.yaml"),
		"Warning: server-side apply merges ...", "service/frontend serverside-applied")
}

func TestNodes(t *testing.T) {
	w := shop(t)
	w.says("cordon n1", "node/n1 cordoned")
	w.says("get nodes", "NAME STATUS ROLES AGE VERSION", "n1 Ready,SchedulingDisabled <none> *", "n2 Ready <none> *")
	w.contains("drain n1 --timeout=300s", "pod/webapp-* evicted", "node/n1 drained")
	w.contains("rollout status deployment/webapp --timeout=300s", `deployment "webapp" successfully rolled out`)
	w.says("get pods -o jsonpath={.items[*].spec.nodeName}", "n2 n2")
	w.says("uncordon n1", "node/n1 uncordoned")
	w.says("taint nodes n1 dedicated=yes:NoSchedule", "node/n1 tainted")
}

func TestDelete(t *testing.T) {
	w := shop(t)
	w.says("delete pods -l app=webapp --dry-run=server", `pod "webapp-*`+" deleted ...", `pod "webapp-*`+" deleted ...")
	pod := strings.TrimSpace(w.run("get", "pods", "-o", "jsonpath={.items[0].metadata.name}"))
	w.contains("delete pod "+pod, `pod "`+pod+`" deleted ...`)
	w.says("wait --for=delete pod/"+pod+" --timeout=300s", "")
	w.contains("rollout status deployment/webapp --timeout=300s", `deployment "webapp" successfully rolled out`)
	w.contains("delete -f "+manifest(t, "frontend-deployment.yaml"), `deployment.apps "webapp" deleted ...`)
	w.says("get pods", "No resources found in default namespace.")
	w.says("run solo --image=nginx --port=80", "pod/solo created")
	w.says("wait --for=condition=Ready pod/solo --timeout=300s", "pod/solo condition met")
	w.contains("delete pod solo --now", `pod "solo" deleted ...`)
	w.says("delete service --all", `service "frontend" deleted from default namespace`)
	w.says("get svc,endpointslices", "No resources found in default namespace.")
	out, err := w.try("delete", "service", "frontend")
	if err == nil || !strings.Contains(out, `Error from server (NotFound): services "frontend" not found`) {
		t.Errorf("%v: %s", err, out)
	}
}

func TestMistakes(t *testing.T) {
	w := shop(t)
	w.run("create", "namespace", "shop")
	for _, c := range []struct{ command, want string }{
		{"get widgets", `the server doesn't have a resource type "widgets"`},
		{"get svc nobody", `Error from server (NotFound): services "nobody" not found`},
		{"create namespace shop", `Error from server (AlreadyExists): namespaces "shop" already exists`},
		{"get pods --field-selector=spec.color=red", "field label not supported: spec.color"},
		{"patch service frontend -p {\"spec\":{\"ports\":[{\"port\":80,\"nodePort\":80}]}}",
			"provided port is not in the valid range"},
		{"get svc --token=wrong", "must be logged in"},
	} {
		out, err := w.try(strings.Fields(c.command)...)
		if err == nil || !strings.Contains(out, c.want) {
			t.Errorf("kubectl %s: %v: %s, want %q", c.command, err, out, c.want)
		}
	}
}

func TestWarning(t *testing.T) {
	w := shop(t)
	w.says("patch service frontend -p {\"spec\":{\"colour\":\"red\"}}",
		`Warning: unknown field "spec.colour"`, "service/frontend patched (no change)")
}

func TestWatch(t *testing.T) {
	w := shop(t)
	cmd := w.command("get", "service", "frontend", "--watch", "--output-watch-events")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.Lab().Node("n1").NS.Start(cmd); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	next := func(want string) {
		t.Helper()
		if !lines.Scan() || !matches(lines.Text(), want) {
			t.Fatalf("got %q, want %q", lines.Text(), want)
		}
	}
	next("EVENT NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE")
	next("ADDED frontend NodePort 10.96.* <none> 80:31380/TCP *")
	w.run("patch", "service", "frontend", "-p", `{"spec":{"type":"ClusterIP"}}`)
	next("MODIFIED frontend ClusterIP 10.96.* <none> 80/TCP *")
	w.run("delete", "service", "frontend")
	next("DELETED frontend ClusterIP 10.96.* <none> 80/TCP *")
	if err := w.server.Close(); err != nil { // ends the watch, and kubectl with it
		t.Error(err)
	}
	if lines.Scan() {
		t.Errorf("got %q after the end", lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestAnOlderKubectl repeats the tests of the commands with another minor version.
func TestAnOlderKubectl(t *testing.T) {
	if olderProgram == program {
		t.Skip("VIPLAB_KUBECTL names the only kubectl")
	}
	newer := program
	program = olderProgram
	t.Cleanup(func() { program = newer })
	newWorld(t).contains("version", "Client Version: "+older, "Server Version: ...")
	for name, test := range map[string]func(*testing.T){
		"Apply": TestApplyAndGet, "Describe": TestDescribe, "Events": TestEvents, "Change": TestChange,
		"Nodes": TestNodes, "Delete": TestDelete, "Watch": TestWatch, "Exec": TestExec, "AttachAndLogs": TestAttachAndLogs,
		"Copy": TestCopy, "PortForwardAndProxy": TestPortForwardAndProxy, "Rollout": TestRolloutCommands,
		"Workloads": TestOtherWorkloads,
	} {
		t.Run(name, test)
	}
}
