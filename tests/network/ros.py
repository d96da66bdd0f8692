"""Traffic as ROS 1 has it: a master that is asked by XML-RPC, nodes that call each other back by
host name, topics and services over TCP at ports chosen at run time, an action made of topics.

    ros.py master NAME              the master, at port 11311
    ros.py robot MASTER NAME        publishes scans, serves "add", takes goals
    ros.py operator MASTER NAME     uses all of it, prints "done" and ends
"""

import queue
import socket
import struct
import sys
import threading
import time
from collections import defaultdict
from socketserver import StreamRequestHandler, ThreadingTCPServer
from xmlrpc.client import ServerProxy
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

ROLE = sys.argv[1]
OK = [1, "", 0]
WITHIN = 20


class Rpc(SimpleXMLRPCServer):
    """An XML-RPC server at a port of its own choice, in a thread of its own."""

    def __init__(self, port, methods):
        super().__init__(("0.0.0.0", port), SimpleXMLRPCRequestHandler, logRequests=False)
        for method in methods:
            self.register_function(method)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Master:
    def __init__(self, name):
        self.topics, self.subscribers, self.services = defaultdict(set), defaultdict(set), {}
        self.lock = threading.Lock()
        Rpc(11311, [self.registerPublisher, self.registerSubscriber, self.registerService,
                    self.lookupService])
        print(f"master at http://{name}:11311/", flush=True)

    def registerPublisher(self, caller, topic, kind, api):
        with self.lock:
            self.topics[topic].add(api)
            publishers, told = list(self.topics[topic]), list(self.subscribers[topic])
        for subscriber in told:
            # The master calls back, to wherever the node said that it is.
            def tell(at=subscriber):
                ServerProxy(at).publisherUpdate("/master", topic, publishers)
            threading.Thread(target=tell, daemon=True).start()
        return [1, "", told]

    def registerSubscriber(self, caller, topic, kind, api):
        with self.lock:
            self.subscribers[topic].add(api)
            return [1, "", list(self.topics[topic])]

    def registerService(self, caller, service, at, api):
        self.services[service] = at
        return OK

    def lookupService(self, caller, service):
        at = self.services.get(service)
        return [1, "", at] if at else [-1, "no such service", ""]


def frame(text):
    return struct.pack("<I", len(text)) + text.encode()


def unframe(file):
    head = file.read(4)
    return file.read(struct.unpack("<I", head)[0]).decode() if len(head) == 4 else None


class Node:
    def __init__(self, master, name):
        self.master, self.name, self.own = ServerProxy(master), name, f"/{ROLE}"
        self.readers, self.connected = defaultdict(list), set()
        self.inbox = defaultdict(queue.Queue)
        self.lock = threading.Lock()
        rpc = Rpc(0, [self.requestTopic, self.publisherUpdate])
        self.api = f"http://{name}:{rpc.server_address[1]}/"
        node = self

        class Topic(StreamRequestHandler):
            def handle(self):
                topic = unframe(self.rfile)
                with node.lock:
                    node.readers[topic].append(self.wfile)
                self.rfile.read()

        class Service(StreamRequestHandler):
            def handle(self):
                while (asked := unframe(self.rfile)) is not None:
                    self.wfile.write(frame(str(sum(map(int, asked.split())))))

        self.ports = {}
        for handler in (Topic, Service):
            ThreadingTCPServer.daemon_threads = True
            server = ThreadingTCPServer(("0.0.0.0", 0), handler)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.ports[handler.__name__] = server.server_address[1]

    def requestTopic(self, caller, topic, protocols):
        return [1, "", ["TCPROS", self.name, self.ports["Topic"]]]

    def publisherUpdate(self, caller, topic, publishers):
        for api in publishers:
            threading.Thread(target=self.read, args=(topic, api), daemon=True).start()
        return OK

    def advertise(self, topic):
        self.master.registerPublisher(self.own, topic, "text", self.api)

    def subscribe(self, topic):
        known = self.master.registerSubscriber(self.own, topic, "text", self.api)[2]
        self.publisherUpdate("", topic, known)

    def read(self, topic, api):
        with self.lock:
            if (topic, api) in self.connected:
                return
            self.connected.add((topic, api))
        _, host, port = ServerProxy(api).requestTopic(self.own, topic, [["TCPROS"]])[2]
        with socket.create_connection((host, port), WITHIN) as stream:
            stream.settimeout(None)
            stream.sendall(frame(topic))
            file = stream.makefile("rb")
            while (said := unframe(file)) is not None:
                self.inbox[topic].put(said)

    def publish(self, topic, text):
        with self.lock:
            for reader in self.readers[topic]:
                reader.write(frame(text))

    def wait_for_reader(self, topic):
        end = time.monotonic() + WITHIN
        while not self.readers[topic]:
            assert time.monotonic() < end, f"nobody reads {topic}"
            time.sleep(0.01)

    def take(self, topic):
        return self.inbox[topic].get(timeout=WITHIN)


def robot(node):
    for topic in ("scan", "feedback", "result"):
        node.advertise(topic)
    for topic in ("goal", "cancel"):
        node.subscribe(topic)
    at = f"rosrpc://{node.name}:{node.ports['Service']}"
    node.master.registerService(node.own, "add", at, node.api)
    print("robot ready", flush=True)
    node.wait_for_reader("scan")
    for number in range(200):
        node.publish("scan", f"{number}:" + "x" * 4000)
    goal, steps = node.take("goal"), 0
    while node.inbox["cancel"].empty():
        steps += 1
        node.publish("feedback", f"{goal} {steps}")
        time.sleep(0.02)
    node.publish("result", f"{goal} cancelled")
    time.sleep(WITHIN)


def operator(node):
    for topic in ("goal", "cancel"):
        node.advertise(topic)
    for topic in ("scan", "feedback", "result"):
        node.subscribe(topic)
    for number in range(200):
        said = node.take("scan")
        assert said == f"{number}:" + "x" * 4000, said[:40]
    where = node.master.lookupService(node.own, "add")[2].removeprefix("rosrpc://")
    host, port = where.rsplit(":", 1)
    with socket.create_connection((host, int(port)), WITHIN) as stream:
        file = stream.makefile("rb")
        for number in range(20):
            stream.sendall(frame(f"{number} 7"))
            assert unframe(file) == str(number + 7)
    node.wait_for_reader("goal")
    node.publish("goal", "dock")
    for step in range(1, 6):
        assert node.take("feedback") == f"dock {step}"
    node.wait_for_reader("cancel")
    node.publish("cancel", "dock")
    assert node.take("result") == "dock cancelled"
    print("done", flush=True)


if ROLE == "master":
    Master(sys.argv[2])
    threading.Event().wait()
else:
    {"robot": robot, "operator": operator}[ROLE](Node(sys.argv[2], sys.argv[3]))
