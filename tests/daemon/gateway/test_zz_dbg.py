import gc, types, collections
from tests.daemon.gateway.test_guard import *
from tests.daemon.gateway.test_guard import _post, _marked
async def test_dbg(supervisor, tmp_path):
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        await client.open()
        host, _, port = served.addresses[0].removeprefix("http://").rpartition(":")
        gc.collect(); gc.disable()
        async with await anyio.connect_tcp(host, int(port)) as stream:
            await stream.send(_post(client, call("a__echo", arguments={"mark": ["of this test"]})))
            await stream.receive(65536)
            supervisor.connection("a").calls.clear()
            await anyio.sleep(0.3)
            print("marked", _marked())
            gc.set_debug(gc.DEBUG_SAVEALL); gc.collect(); gc.set_debug(0)
            ids={id(o):o for o in gc.garbage}
            print("garbage", len(ids), collections.Counter(type(o).__name__ for o in gc.garbage).most_common(40))
            for o in gc.garbage:
                if isinstance(o,(types.FrameType,types.CoroutineType,BaseException,types.CellType)) : print("  ",repr(o)[:170])
            m=[o for o in gc.get_objects() if type(o) is dict and o.get("mark")==["of this test"]]
            print("live", [id(o) in ids for o in m])
            for one in m:
                seen={id(one)}; level=[one]
                for d in range(5):
                    nxt=[]
                    for x in level:
                        for r in gc.get_referrers(x):
                            if id(r) in seen or r is gc.garbage or r is m or r is level or r is nxt or r is ids or isinstance(r,types.FrameType) and r.f_code.co_name=="test_dbg": continue
                            if type(r) is dict and len(r)>500: continue
                            seen.add(id(r)); nxt.append(r)
                            if len(seen)<60: print(" "*d*2, type(r).__name__, repr(r)[:140], id(r) in ids)
                    level=nxt
        gc.enable()
    assert 0
