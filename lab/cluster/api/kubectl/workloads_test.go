// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRolloutCommands(t *testing.T) {
	w := shop(t)
	done := func() {
		t.Helper()
		w.contains("rollout status deployment/webapp --timeout=300s", `deployment "webapp" successfully rolled out`)
	}
	image := func(want string) {
		t.Helper()
		w.says("get pods -o jsonpath={.items[*].spec.containers[0].image}", want)
	}
	first := w.run("get", "deployment", "webapp", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	w.says("get rs", "NAME DESIRED CURRENT READY AGE", "webapp-* 2 2 2 *")
	w.says("set image deployment/webapp nginx=nginx:1.15", "deployment.apps/webapp image updated")
	w.says("annotate deployment webapp kubernetes.io/change-cause=older", "deployment.apps/webapp annotated")
	done()
	image("nginx:1.15 nginx:1.15")
	w.says("rollout history deployment/webapp", "deployment.apps/webapp ", "REVISION CHANGE-CAUSE", "1 <none>", "2 older")
	w.contains("rollout undo deployment/webapp", "deployment.apps/webapp rolled back")
	done()
	image(first + " " + first)
	w.says("rollout history deployment/webapp", "deployment.apps/webapp ", "REVISION CHANGE-CAUSE", "2 older", "3 <none>")
	w.contains("rollout undo deployment/webapp --to-revision=2", "deployment.apps/webapp rolled back")
	done()
	image("nginx:1.15 nginx:1.15")
	w.says("rollout pause deployment/webapp", "deployment.apps/webapp paused")
	w.run("set", "image", "deployment/webapp", "nginx=nginx:1.16")
	image("nginx:1.15 nginx:1.15")
	w.says("rollout resume deployment/webapp", "deployment.apps/webapp resumed")
	done()
	image("nginx:1.16 nginx:1.16")
	before := w.run("get", "pods", "-o", "name")
	w.says("rollout restart deployment/webapp", "deployment.apps/webapp restarted")
	done()
	if after := w.run("get", "pods", "-o", "name"); after == before {
		t.Errorf("the pods are the same after a restart: %s", after)
	}
	w.contains("describe deployment webapp", "NewReplicaSet: webapp-* (2/2 replicas created)")
	w.says("delete deployment webapp --cascade=foreground --wait=false", `deployment.apps "webapp" deleted ...`)
	w.says("get deployments,rs,pods", "No resources found in default namespace.")
}

const workloads = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: a, image: echo, ports: [{containerPort: 80}]}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: d, image: echo, ports: [{containerPort: 80}]}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: sum}
spec:
  completions: 3
  parallelism: 2
  template: {spec: {restartPolicy: Never, containers: [{name: s, image: echo}]}}
`

func TestOtherWorkloads(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "workloads.yaml")
	if err := os.WriteFile(file, []byte(workloads), 0o600); err != nil {
		t.Fatal(err)
	}
	w.says("apply -f "+file, "daemonset.apps/agent created", "statefulset.apps/db created", "job.batch/sum created")
	w.contains("rollout status daemonset/agent --timeout=300s", `daemon set "agent" successfully rolled out`)
	w.contains("rollout status statefulset/db --timeout=300s", "partitioned roll out complete: ...")
	w.says("apply -f "+file, "daemonset.apps/agent unchanged", "statefulset.apps/db unchanged", "job.batch/sum unchanged")
	w.says("get ds", "NAME DESIRED CURRENT READY UP-TO-DATE AVAILABLE NODE SELECTOR AGE", "agent 2 2 2 2 2 <none> *")
	w.says("get sts", "NAME READY AGE", "db 2/2 *")
	w.says("get jobs", "NAME STATUS COMPLETIONS DURATION AGE", "sum Running 0/3 * *")
	w.says("scale statefulset db --replicas=3", "statefulset.apps/db scaled")
	w.says("wait --for=jsonpath={.status.readyReplicas}=3 statefulset/db --timeout=300s", "statefulset.apps/db condition met")
	for _, kind := range []string{"daemonset", "statefulset"} {
		name := map[string]string{"daemonset": "agent", "statefulset": "db"}[kind]
		image := "get " + kind + " " + name + " -o jsonpath={.spec.template.spec.containers[0].image}"
		w.run("set", "image", kind+"/"+name, "*=echo:2")
		w.contains("rollout history "+kind+"/"+name, "REVISION CHANGE-CAUSE", "1 <none>", "2 <none>")
		w.contains("rollout undo "+kind+"/"+name, kind+".apps/"+name+" rolled back")
		w.says(image, "echo")
		w.contains("rollout undo "+kind+"/"+name+" --to-revision=3",
			kind+".apps/"+name+" skipped rollback (current template already matches revision 3)")
		w.contains("rollout undo "+kind+"/"+name+" --to-revision=2", kind+".apps/"+name+" rolled back")
		w.says(image, "echo:2")
		w.contains("rollout status "+kind+"/"+name+" --timeout=300s", "...")
	}
	w.contains("get controllerrevisions", "NAME CONTROLLER REVISION AGE", "agent-* daemonset.apps/agent 3 *")
	w.contains("describe job sum", "Parallelism: 2", "Completions: 3")
	w.run("delete", "-f", file)
	w.says("get all", "No resources found in default namespace.")
}

func TestDrain(t *testing.T) {
	w := shop(t)
	w.says("create poddisruptionbudget webapp --selector=app=webapp --min-available=2", "poddisruptionbudget.policy/webapp created")
	w.says("get pdb", "NAME MIN AVAILABLE MAX UNAVAILABLE ALLOWED DISRUPTIONS AGE", "webapp 2 N/A 0 *")
	out, err := w.try("drain", "n1", "--timeout=2s", "--force")
	if err == nil || !strings.Contains(out, "Cannot evict pod as it would violate the pod's disruption budget.") {
		t.Errorf("drain: %v: %s", err, out)
	}
	w.says("get nodes n1 --no-headers", "n1 Ready,SchedulingDisabled ...")
	w.run("patch", "pdb", "webapp", "-p", `{"spec":{"minAvailable":1}}`)
	w.contains("drain n1 --timeout=300s --force", "node/n1 drained")
	w.says("get pods -o jsonpath={.items[*].spec.nodeName}", "n2 n2")
	w.says("uncordon n1", "node/n1 uncordoned")
	w.says("create serviceaccount robot", "serviceaccount/robot created")
	w.contains("create token robot", "*")
}
